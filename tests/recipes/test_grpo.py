"""The demo recipe, shortened, through the command line and on real ranks."""

import json

import pytest
from small_run import SMALL, command, learned, metrics_of, run

from flexfloor.cli import main
from flexfloor.track.lengths import read_lengths

EXPECTED_METRICS = {
    "critic/score/mean",
    "critic/rewards/max",
    "critic/advantages/min",
    "response_length/mean",
    "response_length/clip_ratio",
    "prompt_length/mean",
    "actor/entropy",
    "actor/pg_loss",
    "actor/pg_clipfrac",
    "actor/ppo_kl",
    "actor/grad_norm",
    "actor/lr",
    "rollout/preemptions",
    "rollout/recomputed_tokens",
    "rollout/peak_kv_bytes",
    "timing_s/gen",
    "timing_s/adv",
    "timing_s/update_actor",
    "timing_s/step",
    "perf/throughput",
    "perf/time_per_step",
    "perf/total_num_tokens",
    "rollout/throughput",
    "rollout/tokens_per_occupied_second",
    "rollout/idle_fraction",
    "ledger/generating_seconds",
    "ledger/training_seconds",
    "ledger/waiting_seconds",
}


def test_two_steps_leave_everything_a_user_is_promised(tmp_path, monkeypatch):
    monkeypatch.delenv("WANDB_MODE", raising=False)
    overrides = ["trainer.logger=[console,jsonl,wandb]", "trainer.save_freq=1"]
    done = command(["train", *SMALL, f"trainer.default_local_dir={tmp_path}", *overrides], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", "a console without noise"
    metrics = metrics_of(tmp_path)
    assert sorted(metrics) == [0, 1, 2]
    assert set(metrics[1]) >= EXPECTED_METRICS
    assert metrics[1]["actor/ppo_kl"] == pytest.approx(0, abs=1e-5), "the first ratio is 1"
    assert metrics[1]["actor/pg_clipfrac"] == 0
    assert not {"timing_s/ref", "actor/kl_loss"} & metrics[1].keys(), "no reference where nothing asks for it"
    assert "val-core/reasoning_gym/spell_backward/mean@1" in metrics[0]
    assert "val-core/reasoning_gym/spell_backward/mean@1" in metrics[2]
    assert (tmp_path / "timeline.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert "</html>" in (tmp_path / "report.html").read_text()
    lengths = read_lengths(tmp_path / "lengths.jsonl")
    assert {step: len(each.uid) for step, each in lengths.items()} == {1: 12, 2: 12}
    for step, each in lengths.items():
        assert each.response_index == [0, 1, 2, 3] * 3
        assert sum(each.num_tokens) == metrics[step]["perf/response_tokens"]
        assert sum(each.truncated) / 12 == pytest.approx(metrics[step]["response_length/clip_ratio"])
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == [
        "step_000000",
        "step_000001",
        "step_000002",
    ]
    assert len(list(tmp_path.glob("wandb/offline-run-*"))) == 1
    samples = [json.loads(line) for line in (tmp_path / "samples.jsonl").read_text().splitlines()]
    assert {row["step"] for row in samples} == {0, 2} and len(samples) == 8
    for text in ("step 1/2", "mean reward", "validation accuracy", "tokens/s", "update_actor"):
        assert text in done.stdout


def test_books_of_every_step_balance(tmp_path):
    assert run(tmp_path) == 0
    for step, metrics in metrics_of(tmp_path).items():
        held = sum(value for name, value in metrics.items() if name.startswith("ledger/"))
        assert held == pytest.approx(2 * metrics["timing_s/step"], rel=1e-6), step


def test_resuming_equals_not_stopping(tmp_path):
    shape = ["trainer.save_freq=2", "actor.optim.lr_warmup_steps=3", "trainer.logger=[jsonl]"]
    assert run(tmp_path / "whole", *shape, "trainer.total_training_steps=4") == 0
    shape[-1] = "trainer.logger=[jsonl,wandb]"
    assert run(tmp_path / "parts", *shape, "trainer.total_training_steps=2") == 0
    [first] = (tmp_path / "parts" / "wandb").glob("offline-run-*")
    assert run(tmp_path / "parts", *shape, "trainer.total_training_steps=4") == 0
    whole, parts = metrics_of(tmp_path / "whole"), metrics_of(tmp_path / "parts")
    assert sorted(parts) == [0, 1, 2, 3, 4]
    for step in range(5):
        assert learned(parts[step]) == learned(whole[step]), step
    assert read_lengths(tmp_path / "parts/lengths.jsonl") == read_lengths(tmp_path / "whole/lengths.jsonl")
    assert whole[3]["actor/lr"] > whole[2]["actor/lr"], "the schedule moves, so that a fresh one would show"
    runs = list((tmp_path / "parts" / "wandb").glob("offline-run-*"))
    ids = {path.name.rpartition("-")[2] for path in runs}
    assert len(ids) == 1 and first.name.rpartition("-")[2] in ids


def test_only_the_newest_checkpoints_stay_and_a_run_goes_on_from_them(tmp_path):
    keep = ["trainer.save_freq=1", "trainer.max_ckpt_to_keep=2"]
    names = []
    for steps in (2, 3):
        assert run(tmp_path, *keep, f"trainer.total_training_steps={steps}") == 0
        names.append(sorted(path.name for path in (tmp_path / "checkpoints").iterdir()))
    assert names == [["step_000001", "step_000002"], ["step_000002", "step_000003"]]
    assert sorted(metrics_of(tmp_path)) == [0, 1, 2, 3]


def test_what_is_learned_does_not_depend_on_the_layout(tmp_path):
    layouts = [(1, 1), (2, 1), (2, 2), (4, 4)]
    found = []
    for ranks, ep in layouts:
        folder = tmp_path / f"{ranks}-{ep}"
        layout = [f"launch.nproc={ranks}", f"parallel.ep={ep}", "model.dtype=float64"]
        loss = ["actor.loss_agg_mode=seq-mean-token-mean", "actor.use_kl_loss=true", "actor.kl_loss_coef=0.5"]
        assert run(folder, *layout, "rollout.temperature=0.8", *loss) == 0
        found.append([learned(metrics) for metrics in metrics_of(folder).values()])
    for layout, steps in zip(layouts[1:], found[1:], strict=True):
        for ours, expected in zip(steps, found[0], strict=True):
            assert ours == pytest.approx(expected, rel=1e-7, abs=1e-10), layout


REWARD_BODIES = {
    "raises": "    if ground_truth[0] < 'l': raise RuntimeError('no score for you')\n    return 1.0",
    "nan": "    return float('nan')",
    "constant": "    return 0.5",
    "extra": "    return {'score': len(solution_str) + bonus, 'cut': finish_reason == 'length'}",
}
SIGNATURE = "def compute_score(data_source, solution_str, ground_truth, finish_reason=None, bonus=0.0):"


def own_reward(tmp_path, name):
    path = tmp_path / f"{name}.py"
    path.write_text(f"{SIGNATURE}\n{REWARD_BODIES[name]}\n")
    return f"reward.custom_reward_function.path={path}"


@pytest.mark.parametrize(("name", "reason"), [("raises", "no score for you"), ("nan", "nan")])
def test_a_failing_reward_names_the_prompt_and_saves_what_was_generated(tmp_path, capfd, name, reason):
    status = run(tmp_path / "run", own_reward(tmp_path, name), "trainer.val_before_train=false")
    assert status == 1
    message = capfd.readouterr().err
    assert reason in message and "reasoning_gym/spell_backward, prompt " in message
    [saved] = (tmp_path / "run").glob("failed_rollout_1.jsonl")
    rows = [json.loads(line) for line in saved.read_text().splitlines()]
    assert len(rows) == 12 and str(saved) in message
    assert any(row["score"] is None for row in rows)


def test_a_reward_may_return_a_mapping_and_take_the_finish_reason(tmp_path):
    overrides = [own_reward(tmp_path, "extra"), "+reward.custom_reward_function.kwargs.bonus=1.0"]
    assert run(tmp_path / "run", *overrides) == 0
    metrics = metrics_of(tmp_path / "run")
    assert metrics[1]["critic/score/mean"] >= 1.0
    cut = metrics[1]["reward/cut/mean"]
    assert cut == pytest.approx(metrics[1]["response_length/clip_ratio"])
    assert "val-aux/reasoning_gym/spell_backward/cut" in metrics[2]


@pytest.mark.parametrize("filtered", ["true", "false"])
def test_a_batch_that_teaches_nothing_passes_without_a_hang(tmp_path, filtered):
    overrides = [own_reward(tmp_path, "constant"), f"algorithm.filter_groups={filtered}"]
    assert run(tmp_path / "run", *overrides) == 0
    step = metrics_of(tmp_path / "run")[1]
    if filtered == "true":
        assert step["actor/skipped_updates"] == 1 and step["critic/trained_fraction"] == 0
    else:
        assert step["actor/pg_loss"] == step["actor/grad_norm"] == step["critic/advantages/max"] == 0


def test_several_mini_batches_epochs_and_recomputed_logprobs(tmp_path):
    overrides = ["actor.ppo_mini_batch_size=1", "actor.ppo_epochs=2", "actor.old_logprobs=recompute"]
    overrides += [own_reward(tmp_path, "extra"), "trainer.total_training_steps=1"]
    assert run(tmp_path / "run", *overrides) == 0
    step = metrics_of(tmp_path / "run")[1]
    assert step["rollout_corr/logprob_abs_diff/max"] < 1e-4
    assert step["timing_s/old_log_prob"] > 0
    assert step["actor/ppo_kl"] != 0, "later mini-batches meet a policy that has moved"


def test_rollout_command_generates_and_scores(tmp_path):
    output = tmp_path / "out.jsonl"
    overrides = [f"generate.output={output}", "generate.split=train", "generate.max_prompts=3"]
    assert run(tmp_path, *overrides, command="rollout") == 0
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert len(rows) == 12 and {row["response_index"] for row in rows} == {0, 1, 2, 3}
    for row in rows:
        assert 0 <= row["score"] <= 1 and row["finish_reason"] in ("eos", "length")
        assert row["ground_truth"] and row["prompt"].endswith("<assistant>")


def test_starting_anew_leaves_no_checkpoint_that_is_not_its_own(tmp_path):
    assert run(tmp_path, "trainer.save_freq=2") == 0
    anew = ["trainer.resume_mode=disable", "trainer.save_freq=1", "trainer.total_training_steps=1"]
    assert run(tmp_path, *anew) == 0
    aside, *steps = sorted((tmp_path / "checkpoints").iterdir())
    assert [path.name for path in steps] == ["step_000000", "step_000001"]
    assert sorted(path.name for path in aside.iterdir()) == ["step_000000", "step_000002"]
    assert sorted(metrics_of(tmp_path)) == [0, 1]


@pytest.mark.parametrize("recipe", ["tiny-qwen3-moe", "tiny-deepseek"])
def test_each_family_takes_steps_and_a_stop_string_ends_its_responses(tmp_path, recipe):
    (tmp_path / "score.py").write_text(
        "def compute_score(data_source, solution_str, ground_truth, finish_reason=None):\n"
        "    return {'score': len(solution_str), 'stopped': finish_reason == 'stop',\n"
        "            'contained': 'e' in solution_str}\n"
    )
    words = [word for word in SMALL if not word.startswith(("recipe=", "model.num_experts="))]
    words += [f"recipe={recipe}", "rollout.stop=[e]", "trainer.total_training_steps=1"]
    words += [f"reward.custom_reward_function.path={tmp_path}/score.py", "rollout.n=8"]
    assert main(["train", *words, f"trainer.default_local_dir={tmp_path}/run"]) == 0
    step = metrics_of(tmp_path / "run")[1]
    assert step["actor/ppo_kl"] == pytest.approx(0, abs=1e-5), "the first ratio is 1"
    assert step["actor/grad_norm"] > 0
    assert 0 < step["reward/stopped/mean"] == step["reward/contained/mean"] < 1


FAMILY = """
import torch

from flexfloor.models.mixtral import Mixtral

class GeluMixtral(Mixtral):
    def transformer_config(self, model, *, ep_size):
        config = super().transformer_config(model, ep_size=ep_size)
        config.activation_func = torch.nn.functional.gelu
        return config
"""


def test_a_family_and_a_recipe_of_the_users_own(tmp_path):
    (tmp_path / "my_family.py").write_text(FAMILY)
    recipe = tmp_path / "my_recipes" / "recipe" / "wide.yaml"
    recipe.parent.mkdir(parents=True)
    recipe.write_text("# @package _global_\ndefaults:\n  - tiny-mixtral\nrollout:\n  n: 16\n")
    small = [override for override in SMALL if not override.startswith(("recipe=", "rollout.n="))]
    own = ["--config-dir", "my_recipes", "recipe=wide", "model.family=my_family:GeluMixtral"]
    folder = ["trainer.default_local_dir=out", "trainer.total_training_steps=1"]
    done = command(["train", *own, *small, *folder], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("taking the reference path") == 1
    assert 0 <= metrics_of(tmp_path / "out")[1]["critic/score/mean"] <= 1


def test_going_on_with_another_model_is_told_in_its_settings(tmp_path, capfd):
    assert run(tmp_path, "trainer.save_freq=2") == 0
    more = ["trainer.total_training_steps=3", "model.num_experts=2"]
    assert run(tmp_path, *more) == 1
    message = capfd.readouterr().err
    assert "model.num_experts is 4 there and 2 here" in message and "step_000002" in message
    assert sorted(metrics_of(tmp_path)) == [0, 1, 2], "what was written stays"
