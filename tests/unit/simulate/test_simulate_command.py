"""`flexfloor simulate`: what its settings mean, what it refuses, and what it leaves behind."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from flexfloor import cli
from flexfloor.config import compose, finite_numbers
from flexfloor.elastic.floor import Need
from flexfloor.errors import ConfigError
from flexfloor.simulate.config import SimulateConfig, SimulatedLengthsConfig
from flexfloor.simulate.policies import POLICIES
from flexfloor.simulate.resolve import scenario_of
from flexfloor.simulate.step import least_lease

SMALL = ["simulate.num_prompts=4", "simulate.n=2", "simulate.lengths.cap=200", "simulate.lengths.median=50"]


def scenario(*words):
    return scenario_of(compose(list(words), check=finite_numbers))


def test_the_most_ranks_that_divide_gpus_and_experts_form_a_group():
    assert scenario("simulate.num_gpus=16", "simulate.model=mixtral-8x7b").ep == 8
    assert scenario("simulate.num_gpus=64", "simulate.model=deepseek-v3", "simulate.hardware=h200").ep == 64
    assert scenario("simulate.num_gpus=256").ep == 128
    assert scenario("simulate.num_gpus=16", "simulate.ep=4").ep == 4


def test_a_recipe_gives_what_is_left_open():
    made = scenario("recipe=tiny-mixtral", "simulate=recipe", "data.train_batch_size=5", "rollout.n=3")
    assert (made.model.num_experts, made.model.hidden_size, made.model.weight_bytes) == (8, 128, 4)
    assert (made.prompt_tokens, made.trace.cap, made.interval, made.max_live) == (96, 32, 8, 64)
    assert len(made.trace.step(0).tokens) == 15


def test_ranks_part_as_in_the_run_that_is_described():
    recipe = ["recipe=tiny-mixtral", "simulate=recipe"]
    assert scenario(*recipe).detach is None and scenario(*recipe).overlap
    assert scenario(*recipe, "elastic.detach=false").detach is False
    told = scenario(*recipe, "elastic.detach=false", "simulate.detach=true")
    assert told.detach and not told.overlap, "no lease opens where ranks leave in no order"
    published = scenario("elastic.detach=false", "simulate.overlap=false")
    assert published.detach is None and published.may_part("guided")


SHIPPED = sorted(path.stem for path in (Path(__file__).parents[3] / "conf/simulate").glob("*.yaml"))


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_setting_describes_a_scenario(name):
    assert scenario(f"simulate={name}").room > 0


def test_rungs_are_powers_of_two_and_those_midway_unless_given():
    assert scenario("simulate.num_gpus=64").open_rungs() == (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48)
    assert scenario("simulate.num_gpus=6", "simulate.ep=2").open_rungs() == (1,)
    assert scenario("simulate.num_gpus=1").open_rungs() == ()
    assert scenario("simulate.rungs=[6,3]").open_rungs() == (3, 6)


def test_lengths_of_a_real_run_are_replayed(tmp_path):
    row = {
        "step": 0,
        "uid": ["a", "a"],
        "response_index": [0, 1],
        "num_tokens": [3, 9],
        "truncated": [False] * 2,
    }
    (tmp_path / "lengths.jsonl").write_text(json.dumps(row) + "\n")
    words = [f"simulate.lengths.path={tmp_path}", "simulate.lengths.cap=16"]
    made = scenario(*words, "simulate.epochs=1")
    assert made.trace.step(0).tokens.tolist() == [3, 9] and made.trace.cap == 16
    with pytest.raises(ConfigError, match=r"simulate\.epochs = 3: must be at most the 1 steps of"):
        scenario(*words)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["simulate.ep=3"], "simulate.num_gpus = 8: must be a number of GPUs that simulate.ep = 3 divides"),
        (
            ["simulate.ep=16", "simulate.num_gpus=16", "simulate.model=mixtral-8x7b"],
            "simulate.model = 'mixtral-8x7b': must be a model with a number of experts that simulate.ep = 16",
        ),
        (
            ["simulate.detach=true", "simulate.tp=2"],
            "simulate.detach = true: must be false with replicas of 2 ranks, which cannot part",
        ),
        (["simulate.rungs=[8]"], "simulate.rungs = [8]: must be sizes below the expert group's 8 ranks"),
        (
            ["simulate.model=deepseek-v3"],
            "simulate.ep = 8: must be more, for deepseek-v3, or simulate.hardware",
        ),
        (["simulate.tp=2", "simulate.rungs=[4]"], "must be sizes below the expert group's 4 replicas"),
        (["simulate.tp=4", "simulate.ep=2"], "simulate.tp = 4: must be a divisor of simulate.ep = 2"),
        (["simulate.tp=8"], "simulate.tp = 8: must be a divisor of the 4 key/value heads of qwen3-30b-a3b"),
        (
            ["simulate.tp=16", "simulate.num_gpus=16"],
            "simulate.tp = 16: must be a divisor of the 8 GPUs of a node",
        ),
        (
            ["recipe=mixtral-8x7b", "parallel.tp=8", "simulate.ep=4"],
            "parallel.tp = 8: must be a divisor of simulate.ep = 4",
        ),
        (
            ["recipe=tiny-deepseek", "simulate=recipe", "simulate.tp=2", "model.ffn_hidden_size=501"],
            "model.ffn_hidden_size = 501: must be a multiple of parallel.tp = 2",
        ),
        (["simulate.hardware=h10"], "simulate.hardware = 'h10': must be one of h100, h200, h800"),
        (["simulate.num_gpu=8"], "simulate.num_gpu: no such field; did you mean simulate.num_gpus?"),
        (["simulate.lengths.median=nan"], "simulate.lengths.median = nan: must be a finite number"),
    ],
)
def test_what_cannot_be_is_named(words, complaint):
    with pytest.raises(ConfigError, match=re.escape(complaint)):
        scenario(*words)


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (
            lambda: SimulateConfig(model="gpt"),
            "simulate.model = 'gpt': must be one of mixtral-8x7b, deepseek",
        ),
        (lambda: SimulateConfig(num_gpus=0), "simulate.num_gpus = 0: must be >= 1"),
        (lambda: SimulateConfig(ep=0), "simulate.ep = 0: must be >= 1"),
        (lambda: SimulateConfig(tp=0), "simulate.tp = 0: must be >= 1"),
        (lambda: SimulateConfig(epochs=0), "simulate.epochs = 0: must be >= 1"),
        (lambda: SimulateConfig(prompt_tokens=-1), "simulate.prompt_tokens = -1: must be >= 0"),
        (lambda: SimulateConfig(memory_share=0.0), "simulate.memory_share = 0.0: must be > 0"),
        (lambda: SimulateConfig(step_floor_seconds=-1.0), "simulate.step_floor_seconds = -1.0: must be >= 0"),
        (lambda: SimulateConfig(rungs=[2, 2]), "simulate.rungs = [2, 2]: must be different sizes"),
        (lambda: SimulateConfig(policies=["best"]), "simulate.policies = 'best': must be one of paged"),
        (lambda: SimulateConfig(policies=[]), "simulate.policies = []: must be some of paged"),
        (lambda: SimulateConfig(slowdowns=[-0.1]), "simulate.slowdowns = -0.1: must be >= 0"),
        (lambda: SimulateConfig(output=""), "simulate.output = '': must be a folder"),
        (lambda: SimulatedLengthsConfig(median=0.5), "simulate.lengths.median = 0.5: must be >= 1"),
        (
            lambda: SimulatedLengthsConfig(p90_over_p50=0.9),
            "simulate.lengths.p90_over_p50 = 0.9: must be >= 1",
        ),
        (lambda: SimulatedLengthsConfig(cap_share=1.1), "simulate.lengths.cap_share = 1.1: must be >= 0"),
        (lambda: SimulatedLengthsConfig(cap=0), "simulate.lengths.cap = 0: must be >= 1"),
    ],
)
def test_a_section_refuses_what_is_out_of_range(make, complaint):
    with pytest.raises(ConfigError, match=re.escape(complaint)):
        make()


def test_a_simulation_prints_a_table_and_leaves_pictures_and_figures(tmp_path, capsys):
    words = [*SMALL, f"simulate.output={tmp_path}/out", "simulate.slowdowns=[0.3]", "simulate.epochs=2"]
    assert cli.main(["simulate", *words]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("simulated: qwen3-30b-a3b on 8 H100, one expert group of 8; 8 responses a step")
    assert all(f"│ {name} " in shown for name in POLICIES)
    figures = json.loads((tmp_path / "out/simulated.json").read_text())
    assert set(figures) == {*POLICIES, "30% slower"}
    assert all(figures["paged"][name] > 0 for name in ("throughput", "wall_s", "step_s"))
    pictures = {path.name for path in (tmp_path / "out").glob("*.png")}
    assert pictures == {"frontier.png", *(f"timeline-{name}.png" for name in POLICIES)}


def test_a_wrong_setting_ends_with_status_2(capsys):
    assert cli.main(["simulate", "simulate.hardware=h10"]) == 2
    assert capsys.readouterr().err.startswith("flexfloor: simulate.hardware = 'h10': must be one of h100")


REAL = ["recipe=mixtral-8x7b", "simulate.interval=64"]


def test_what_training_holds_is_no_ones_cache_and_no_ones_guest():
    """Mixtral on 8 H200, of which each has 134.0 GB to give.

    Beside dense weights of 3.2, state of training of 99.0 and a cache of 8.6, 23.0 GB are left for experts of
    11.3, and 122.1 without that state. A lease puts all weights and gradients, 270.6 GB of them the experts',
    into what dense ones leave: 124.3 GB of each of 3 ranks, and with state of the optimizer of 70.1 and
    recomputed activations of 8.7 in it, 45.5 of each of 6; with that state on the host 115.6 of each of 3.
    """
    held, apart = scenario(*REAL), scenario(*REAL, "simulate.holds_training=false")
    assert held.memory.training == held.held.gradients + held.held.optimizer and apart.memory.training == 0
    assert held.room == apart.room == 128 * 512
    away = scenario(*REAL, "actor.offload_optimizer=true")
    assert away.memory.training == away.held.gradients
    assert (least_lease(held), least_lease(away), least_lease(apart)) == (6, 3, 3)
    need = Need(sequences=128, kv_tokens=held.room, rows=8 * 128)
    assert (held.memory.hostable(need), apart.memory.hostable(need)) == (2, 10)
    assert held.open_rungs() == (1, 2, 4)


def test_replicas_share_their_dense_weights_in_a_lease_too():
    """DeepSeek-V3 on H200s, 134.0 GB each: of 17.12 billion dense numbers half take 51.4 GB with gradients,
    beside 31.5 of the optimizer and 2.3 of activations, so that 48.8 are left for 653.9 billion routed ones,
    3,923 GB: 80.4 ranks, which are 41 replicas of two. Apart from all else and whole they leave 31.2: 126.
    """
    recipe = "recipe=deepseek-v3"
    whole = scenario(recipe, "simulate.tp=1", "simulate.holds_training=false")
    assert (least_lease(scenario(recipe)), least_lease(whole)) == (41, 126)
    assert scenario(recipe).overlap


def test_a_cache_beyond_what_training_leaves_is_refused():
    """105.7 GiB of state and 40 GB, which are 37.3 GiB."""
    words = [*REAL, "rollout.kv_budget_bytes=40000000000", "rollout.max_live_sequences=1000"]
    assert scenario(*words, "simulate.holds_training=false").room == 40_000_000_000 // 131_072
    with pytest.raises(ConfigError, match=r"143\.0 GiB are needed on each GPU, and h200 has 124\.8 to give"):
        scenario(*words)


def test_only_a_recipe_says_what_training_holds():
    with pytest.raises(
        ConfigError, match=r"simulate\.holds_training = true: must be false unless simulate\.model"
    ):
        scenario("simulate.holds_training=true")


def test_a_recipe_is_shown_with_its_memory(tmp_path, capsys):
    words = ["recipe=deepseek-v2-lite", "data.train_batch_size=8", "rollout.n=2", "simulate.epochs=1"]
    assert cli.main(["simulate", *words, f"simulate.output={tmp_path}"]) == 0
    shown = capsys.readouterr().out
    rows = dict(re.findall(r"│ ([A-Za-z ,]+?) +│ +([\d.]+|yes|NO) │", shown))
    parts = [float(rows[name]) for name in ("dense weights", "own experts", "gradients", "optimizer")]
    assert sum(parts) == pytest.approx(float(rows["always"]), abs=0.2)
    # 80 GB are 74.5 GiB, of which 5 % stay free
    assert (rows["a GPU has to give"], rows["fits"]) == ("70.8", "yes")
