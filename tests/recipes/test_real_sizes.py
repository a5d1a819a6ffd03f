"""Recipes of real sizes: the released shapes, and headers that say what the simulator says."""

from __future__ import annotations

import dataclasses
import re
from functools import cache
from pathlib import Path

import pytest
import released

from flexfloor.config import Config, compose
from flexfloor.doctor.memory import gpu_memory
from flexfloor.errors import ConfigError
from flexfloor.models.activations import row_activation_bytes
from flexfloor.overlap.config import is_wanted
from flexfloor.overlap.floor import LeaseMemory
from flexfloor.overlap.footprint import SKEW
from flexfloor.overlap.openings import Openings
from flexfloor.simulate.comparison import compare
from flexfloor.simulate.models import MODELS, shape_of
from flexfloor.simulate.resolve import recipe_memory, scenario_of

GIB = 2**30
CONF = Path(__file__).parents[2] / "conf"
_V2_LITE_SIZES = {"intermediate_size": 10944, "moe_intermediate_size": 1408, "n_routed_experts": 64}
_LATENTS = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
_YARN = {
    "beta_fast": 32,
    "beta_slow": 1,
    "factor": 40,
    "original_max_position_embeddings": 4096,
    "type": "yarn",
}
RELEASED = {
    "mixtral-8x7b": (
        "Mixtral",
        {"intermediate_size": 14336, "num_key_value_heads": 8},
        (32, 4096, 32, 32000),
    ),
    "qwen3-30b-a3b": (
        "Qwen3-MoE",
        {
            "head_dim": 128,
            "intermediate_size": 6144,
            "max_window_layers": 48,
            "moe_intermediate_size": 768,
            "num_experts": 128,
            "num_experts_per_tok": 8,
            "num_key_value_heads": 4,
        },
        (48, 2048, 32, 151936),
    ),
    "deepseek-v2-lite": (
        "DeepSeek-V2-Lite",
        {
            **_V2_LITE_SIZES,
            **_LATENTS,
            "num_key_value_heads": 16,
            "rope_scaling": _YARN | {"mscale": 0.707, "mscale_all_dim": 0.707},
        },
        (27, 2048, 16, 102400),
    ),
    "deepseek-v3": (
        "DeepSeek-V3",
        {
            **_LATENTS,
            "first_k_dense_replace": 3,
            "intermediate_size": 18432,
            "moe_intermediate_size": 2048,
            "n_routed_experts": 256,
            "num_key_value_heads": 128,
            "q_lora_rank": 1536,
            "rope_scaling": _YARN | {"mscale": 1.0, "mscale_all_dim": 1.0},
        },
        (61, 7168, 128, 129280),
    ),
}
"""The sizes in the config.json of each, beside the keys and values that `released` has of it."""


def released_folder(folder: Path, name: str, **changes: object) -> Path:
    file, sizes, (layers, hidden, heads, vocab_size) = RELEASED[name]
    common = {"num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads}
    common |= {"initializer_range": 0.02, "max_position_embeddings": 32768, "vocab_size": vocab_size}
    return released.write(folder, file, **(common | sizes | changes))


@cache
def composed(name: str) -> Config:
    return compose([f"recipe={name}"])


def with_weights(name: str, folder: Path) -> Config:
    return compose([f"recipe={name}", f"model.path='{folder}'", "tokenizer.path=${model.path}"])


@pytest.mark.parametrize("name", RELEASED)
def test_a_model_is_what_its_config_json_says(name: str, tmp_path: Path) -> None:
    """Each field of the section, whether model.path fills it or our file does."""
    plain = composed(name).model
    filled = with_weights(name, released_folder(tmp_path, name))
    assert filled.tokenizer.path == str(tmp_path)
    assert dataclasses.replace(filled.model, path=None) == plain
    assert plain.dtype == "bfloat16"


@pytest.mark.parametrize("name", RELEASED)
def test_the_folder_of_another_size_is_refused(name: str, tmp_path: Path) -> None:
    folder = released_folder(tmp_path, name, num_hidden_layers=60)
    with pytest.raises(ConfigError, match=r"^model\.num_layers = \d+: must be 60 as .*config\.json says"):
        with_weights(name, folder)


@pytest.mark.parametrize("name", RELEASED)
def test_the_simulator_has_the_same_model(name: str) -> None:
    model = composed(name).model
    assert model.vocab_size
    assert shape_of(name, model, model.vocab_size) == MODELS[name]


@pytest.mark.parametrize("name", RELEASED)
def test_the_simulated_cluster_is_the_one_that_is_asked_for(name: str) -> None:
    config = composed(name)
    slurm = config.launch.slurm
    scenario = scenario_of(config)
    assert config.launch.num_ranks == scenario.num_gpus == 8 * slurm.nodes
    assert (scenario.ep, scenario.tp, slurm.gpus_per_node) == (config.parallel.ep, config.parallel.tp, 8)
    assert scenario.rungs == tuple(sorted(config.elastic.rungs))
    assert config.model.path is None and not config.data.train_files, "nothing is loaded or fetched"
    # no sequence is longer than the micro-batch whose activations were counted
    assert scenario.longest <= config.actor.micro_batch_tokens
    assert scenario.room == config.rollout.kv_budget_bytes // scenario.model.kv_bytes_on_rank(scenario.tp)


@pytest.mark.parametrize("name", RELEASED)
def test_the_header_says_what_is_simulated_today(name: str) -> None:
    config = composed(name)
    scenario, header = scenario_of(config), header_of(name)
    held = recipe_memory(config, scenario.ep)
    sizes = (held.most, scenario.memory.budget, held.dense, held.experts, held.gradients, held.optimizer)
    found = numbers(header, r"# Memory:", r"# Time:")
    assert found == pytest.approx([size / GIB for size in (*sizes, held.cache, held.activations)], rel=0.05)
    assert config.simulate.holds_training and held.most <= scenario.memory.budget
    (result,) = compare(scenario, ["flexfloor"], config.simulate.epochs, objective=config.schedule.objective)
    responses = config.data.train_batch_size * config.rollout.n
    expected = [result.step_s, result.wall_s, responses, config.simulate.lengths.median]
    assert numbers(header, r"# Time:", r"\n") == pytest.approx(expected, rel=0.05)
    assert f"by: flexfloor simulate recipe={name}\n" in header


def header_of(name: str) -> str:
    text = (CONF / f"recipe/{name}.yaml").read_text(encoding="utf-8")
    return text[: text.index("defaults:")]


def numbers(text: str, start: str, end: str) -> list[float]:
    """Those between the first `start` and the next `end`."""
    found = re.search(f"{start}(.*?){end}", text, re.DOTALL)
    assert found, (start, end)
    return [float(word.replace(",", "")) for word in re.findall(r"\d[\d,]*\.?\d*", found[1])]


def test_deepseek_v3_is_refused_where_each_gpu_has_all_dense_weights() -> None:
    complaint = (
        r"^simulate\.holds_training = true: must be false, or simulate\.hardware with more memory: 142\."
    )
    with pytest.raises(ConfigError, match=complaint):
        scenario_of(compose(["recipe=deepseek-v3", "parallel.tp=1"]))


@pytest.mark.parametrize(("tp", "fewest"), [(2, 64), (1, None)])
def test_deepseek_v3_trains_early_on_half_its_replicas_of_two_and_on_no_single_ranks(tp, fewest) -> None:
    config = compose(["recipe=deepseek-v3", f"parallel.tp={tp}"])
    held = gpu_memory(config, vocab_size=config.model.vocab_size, world_size=256, ep=256)
    # one expert a rank, so that a guest is what a rank has of them, and twice as much for its sums in float32
    memory = LeaseMemory(
        budget=int(124.8 * GIB),
        weights=held.dense + held.experts,
        training=held.gradients + held.optimizer,
        guest=3 * held.experts,
        row=SKEW * row_activation_bytes(config.model, config.model.vocab_size, config.actor.recompute, tp),
        rows=config.data.max_prompt_length + config.data.max_response_length,
    )
    sizes = {"num_experts": 256, "num_replicas": 256 // tp, "replica_size": tp}
    assert Openings(**sizes, rungs=config.elastic.rungs, memory=memory).fewest == fewest
    assert is_wanted(config.overlap, config.elastic, config.parallel.ep, tp)
