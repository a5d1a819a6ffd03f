"""What a config.json becomes, what becomes of it on the way back, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import released
from transformers import AutoConfig

from flexfloor.doctor.parameters import dense_parameters, expert_parameters
from flexfloor.errors import ConfigError
from flexfloor.models.config import ModelConfig
from flexfloor.models.hf_config import UNDETERMINED, read_hf_config, write_hf_config
from flexfloor.models.rope_config import RopeScaling

SIZES: dict[str, tuple[dict[str, Any], float]] = {
    "Mixtral": (
        {"hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_hidden_layers": 32}
        | {"num_key_value_heads": 8, "vocab_size": 32000},
        46.70e9,
    ),
    "Qwen3-MoE": (
        {"head_dim": 128, "hidden_size": 2048, "moe_intermediate_size": 768, "num_attention_heads": 32}
        | {"num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 48, "num_key_value_heads": 4}
        | {"vocab_size": 151936},
        30.53e9,
    ),
    "DeepSeek-V2-Lite": (
        {"hidden_size": 2048, "intermediate_size": 10944, "kv_lora_rank": 512, "moe_intermediate_size": 1408}
        | {"n_routed_experts": 64, "num_attention_heads": 16, "num_hidden_layers": 27, "v_head_dim": 128}
        | {"num_key_value_heads": 16, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "vocab_size": 102400},
        15.71e9,
    ),
    "Moonlight": (
        {"hidden_size": 2048, "intermediate_size": 11264, "kv_lora_rank": 512, "moe_intermediate_size": 1408}
        | {"n_routed_experts": 64, "num_attention_heads": 16, "num_hidden_layers": 27, "v_head_dim": 128}
        | {"num_key_value_heads": 16, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "vocab_size": 163840},
        15.96e9,
    ),
    "DeepSeek-V3": (
        {"hidden_size": 7168, "intermediate_size": 18432, "kv_lora_rank": 512, "moe_intermediate_size": 2048}
        | {"n_routed_experts": 256, "num_attention_heads": 128, "num_hidden_layers": 61, "v_head_dim": 128}
        | {"num_key_value_heads": 128, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "vocab_size": 129280}
        | {"first_k_dense_replace": 3, "q_lora_rank": 1536},
        671.0e9,
    ),
}
"""What the released files have instead, and how many parameters the makers name."""


def _fp8(**changes: Any) -> dict[str, Any]:
    """A quantization_config as DeepSeek-V3 is released with, after changes."""
    released_as = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic"}
    return {"quantization_config": released_as | {"weight_block_size": [128, 128]} | changes}


@pytest.mark.parametrize("name", SIZES)
def test_a_released_file_gives_as_many_parameters_as_its_makers_name(name: str, tmp_path: Path) -> None:
    changes, parameters = SIZES[name]
    found = read_hf_config(released.write(tmp_path, name, **changes))
    model = ModelConfig(**found.fields)
    ours = dense_parameters(model, found.vocab_size) + model.num_experts * expert_parameters(model)
    assert ours == pytest.approx(parameters, rel=2e-3)


def test_yarn_groups_and_latents_reach_the_fields(tmp_path: Path) -> None:
    found = read_hf_config(released.write(tmp_path, "DeepSeek-V2"))
    assert (found.vocab_size, found.max_positions, found.mtp_layers) == (48, 640, 0)
    model = ModelConfig(**found.fields)
    assert model.family == "deepseek_v2" and model.vocab_size == 48
    assert (model.moe_router_num_groups, model.moe_router_group_topk) == (8, 3)
    assert (model.moe_router_group_experts, model.moe_router_topk_scaling_factor) == (1, 16.0)
    assert not model.norm_topk_prob and model.latent_norm_eps == 1e-6
    assert model.rope_scaling == RopeScaling(
        factor=40.0,
        original_max_position_embeddings=16,
        beta_fast=0.2,
        beta_slow=0.02,
        mscale=0.707,
        mscale_all_dim=0.707,
    )


def test_one_group_is_none_and_norms_of_latents_keep_their_own_epsilon(tmp_path: Path) -> None:
    model = ModelConfig(**read_hf_config(released.write(tmp_path, "Moonlight")).fields)
    assert model.moe_router_num_groups is model.moe_router_group_topk is model.q_lora_rank is None
    assert (model.norm_eps, model.latent_norm_eps, model.rope_theta) == (1e-5, 1e-6, 50000.0)
    assert model.moe_router_enable_expert_bias and model.moe_router_score_function == "sigmoid"


def test_layers_of_multi_token_prediction_are_counted(tmp_path: Path) -> None:
    assert read_hf_config(released.write(tmp_path, "DeepSeek-V3")).mtp_layers == 1


@pytest.mark.parametrize("name", ["num_local_experts", "num_experts"])
def test_experts_and_heads_are_found_under_the_names_that_transformers_gave_them(
    name: str, tmp_path: Path
) -> None:
    content = dict(released.RELEASED["Qwen3-MoE"])
    content[name] = content.pop("num_experts")
    del content["head_dim"]
    (tmp_path / "config.json").write_text(json.dumps(content))
    model = ModelConfig(**read_hf_config(tmp_path).fields)
    assert (model.num_experts, model.head_dim, model.channels_per_head) == (12, None, 8)


def test_a_rotary_base_keeps_its_fraction_wherever_it_stands(tmp_path: Path) -> None:
    for name, base in (("DeepSeek-V3", 12345.75), (released.BY_TRANSFORMERS_5, 30000.5)):
        changes = {"rope_theta": base} if name == "DeepSeek-V3" else {}
        assert read_hf_config(released.write(tmp_path, name, **changes)).fields["rope_theta"] == base


WRITTEN_OTHERWISE = {"rope_theta", "rope_scaling", "rope_parameters", "torch_dtype", "head_dim"}
"""Keys that are compared in another form."""
WRITTEN_OTHERWISE |= {"num_nextn_predict_layers", "aux_loss_alpha", "seq_aux", "ep_size", "max_window_layers"}
"""Keys that say nothing of what the layers that we have compute."""


@pytest.mark.parametrize("name", released.RELEASED)
def test_what_is_written_is_read_as_the_same_by_us_and_by_transformers(name: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    found = read_hf_config(released.write(source, name))
    model = ModelConfig(**found.fields, dtype="bfloat16")
    write_hf_config(tmp_path, model, vocab_size=found.vocab_size, max_positions=found.max_positions)
    again = read_hf_config(tmp_path)
    assert again.fields | {"head_dim": None} == found.fields | {"head_dim": None}
    assert ModelConfig(**again.fields).channels_per_head == model.channels_per_head
    theirs, expected = (AutoConfig.from_pretrained(folder) for folder in (tmp_path, source))
    without_dense_layers = {"intermediate_size"} if name == "Qwen3-MoE" else set()
    for key in released.RELEASED[name].keys() - WRITTEN_OTHERWISE - without_dense_layers:
        assert getattr(theirs, key, None) == getattr(expected, key, None), key
    scaled, wanted = ({k: v for k, v in each.rope_parameters.items() if v} for each in (theirs, expected))
    assert scaled == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("name", "changes", "complaint"),
    [
        ("Mixtral", {"model_type": "mixtrl"}, "model_type = 'mixtrl': .*deepseek_v2, .*did you mean mixtral"),
        ("Mixtral", {"sliding_window": 512}, "sliding_window = 512: must be null, or .* = 640 or more"),
        ("Mixtral", {"hidden_act": "gelu"}, "hidden_act = 'gelu': must be 'silu'"),
        ("Mixtral", {"hidden_size": "32"}, "hidden_size = '32': must be a whole number"),
        ("Mixtral", {"num_hidden_layers": 2.5}, "num_hidden_layers = 2.5: must be a whole number"),
        ("Mixtral", {"num_attention_heads": 3}, "json: model.num_query_groups = 2: must be a divisor"),
        ("Mixtral", {"rope_scaling": {"type": "linear", "factor": 2}}, "rope_scaling.rope_type = 'linear'"),
        ("Mixtral", {"rope_scaling": {"type": "yarn", "factor": 2}}, "rope_type = 'yarn': must be default"),
        ("Mixtral", {"quantization_config": {"bits": 4}}, "config.quant_method = null: must be 'fp8', or no"),
        (
            "DeepSeek-V3",
            _fp8(quant_method="gptq"),
            "config.quant_method = 'gptq': must be 'fp8', or no quant",
        ),
        ("DeepSeek-V3", _fp8(fmt="e5m2"), "quantization_config.fmt = 'e5m2': must be 'e4m3'"),
        ("DeepSeek-V3", _fp8(activation_scheme="static"), "activation_scheme = 'static': must be 'dynamic'"),
        ("DeepSeek-V3", _fp8(weight_block_size=None), "weight_block_size = null: must be two whole numbers"),
        ("DeepSeek-V3", _fp8(weight_block_size=[0, 1]), r"weight_block_size = \[0, 1\]: must be two whole"),
        ("DeepSeek-V3", _fp8(twist=1), "quantization_config.twist = 1: is not known for fp8"),
        ("Mixtral", {"partial_rotary_factor": 0.5}, "partial_rotary_factor = 0.5: must be 1.0"),
        ("Qwen3-MoE", {"mlp_only_layers": [1]}, r"mlp_only_layers = \[1\]: must be \[\]"),
        ("Qwen3-MoE", {"decoder_sparse_step": 2}, "decoder_sparse_step = 2: must be 1"),
        ("Qwen3-MoE", {"attention_bias": True}, "attention_bias = true: must be false"),
        ("Qwen3-MoE", {"use_sliding_window": True}, "use_sliding_window = true: must be false"),
        ("DeepSeek-V2", {"norm_topk_prob": True}, "norm_topk_prob = true: must be false"),
        (
            "DeepSeek-V2",
            {"topk_method": "noaux_tc"},
            "topk_method = 'noaux_tc': must be one of greedy, group",
        ),
        ("DeepSeek-V2", {"scoring_func": "sigmoid"}, "scoring_func = 'sigmoid': must be 'softmax'"),
        ("DeepSeek-V3", {"moe_layer_freq": 2}, "moe_layer_freq = 2: must be 1"),
        ("DeepSeek-V3", {"num_key_value_heads": 2}, "num_key_value_heads = 2: must be 4 or null"),
        ("DeepSeek-V3", {"rope_interleave": False}, "rope_interleave = false: must be true"),
        ("DeepSeek-V3", {"norm_topk_prob": False}, "json: model.norm_topk_prob = false: must be true"),
        ("DeepSeek-V3", {"rope_scaling": {"type": "yarn", "factor": 4}}, "original_max.*: is missing"),
        (
            "DeepSeek-V3",
            {"rope_scaling": released.RELEASED["DeepSeek-V3"]["rope_scaling"] | {"attention_factor": 2.0}},
            "rope_scaling.attention_factor = 2.0: must be null",
        ),
        (
            "DeepSeek-V3",
            {"rope_scaling": released.RELEASED["DeepSeek-V3"]["rope_scaling"] | {"twist": 1}},
            "rope_scaling.twist = 1: is not known for yarn angles",
        ),
    ],
)
def test_what_we_would_compute_otherwise_is_refused_by_key_and_value(
    name: str, changes: dict[str, Any], complaint: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=complaint) as caught:
        read_hf_config(released.write(tmp_path, name, **changes))
    assert str(caught.value).startswith(f"model.path: {tmp_path}/config.json: ")


@pytest.mark.parametrize("more", [{}, {"scale_fmt": "ue8m0"}, {"modules_to_not_convert": ["lm_head"]}])
def test_fp8_is_taken_and_is_not_what_is_written(more: dict[str, Any], tmp_path: Path) -> None:
    found = read_hf_config(
        released.write(tmp_path, "DeepSeek-V3", **_fp8(weight_block_size=[128, 64], **more))
    )
    assert found.weight_block == (128, 64)
    model = ModelConfig(**found.fields)
    write_hf_config(tmp_path, model, vocab_size=found.vocab_size, max_positions=found.max_positions)
    assert "quantization_config" not in json.loads((tmp_path / "config.json").read_text())
    assert read_hf_config(tmp_path).weight_block is None


def test_a_window_as_long_as_the_model_is_none(tmp_path: Path) -> None:
    assert read_hf_config(released.write(tmp_path, "Mixtral", sliding_window=640)).max_positions == 640


@pytest.mark.parametrize("key", ["hidden_size", "num_local_experts", "rope_theta", "vocab_size"])
def test_a_missing_key_is_named(key: str, tmp_path: Path) -> None:
    content = dict(released.RELEASED["Mixtral"])
    del content[key]
    (tmp_path / "config.json").write_text(json.dumps(content))
    with pytest.raises(ConfigError, match=rf"model.path: {tmp_path}/config.json: {key}.*: is missing"):
        read_hf_config(tmp_path)


def test_a_folder_without_a_readable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"model.path = .*: holds no config.json"):
        read_hf_config(tmp_path)
    for text in ("{", "[]"):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(ConfigError, match=r"config.json is no JSON"):
            read_hf_config(tmp_path)


@pytest.mark.parametrize(
    ("name", "changes", "complaint"),
    [
        ("Mixtral", {"num_shared_experts": 1}, "model.num_shared_experts = 1: must be 0"),
        ("Mixtral", {"norm_topk_prob": False}, "model.norm_topk_prob = false: must be True"),
        ("Moonlight", {"latent_norm_eps": None}, "model.latent_norm_eps = 1e-05: must be 1e-06"),
        ("DeepSeek-V3", {"moe_router_group_experts": 1}, "model.moe_router_group_experts = 1: must be 2"),
        ("DeepSeek-V2", {"moe_router_group_experts": None}, "model.moe_router_group_experts = 2: must be 1"),
        ("Mixtral", {"family": "my.module:Family"}, "model.family = 'my.module:Family': must be one of"),
    ],
)
def test_a_model_that_no_config_json_can_mean_is_not_written(
    name: str, changes: dict[str, Any], complaint: str, tmp_path: Path
) -> None:
    fields = read_hf_config(released.write(tmp_path, name)).fields | changes
    (tmp_path / "config.json").unlink()
    with pytest.raises(ConfigError, match=complaint):
        write_hf_config(tmp_path, ModelConfig(**fields), vocab_size=48, max_positions=64)
    assert not list(tmp_path.iterdir())


def test_every_field_is_determined_or_listed(tmp_path: Path) -> None:
    determined = read_hf_config(released.write(tmp_path, "Mixtral")).fields
    assert set(ModelConfig.__dataclass_fields__) == {*determined, *UNDETERMINED}
