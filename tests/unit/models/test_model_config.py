"""What a model section may say, and how it complains."""

from __future__ import annotations

import pytest

from flexfloor.errors import ConfigError
from flexfloor.models.config import ModelConfig
from flexfloor.models.rope_config import RopeScaling

LATENT = {"family": "deepseek_v3", "kv_lora_rank": 8}
YARN = {"factor": 4.0, "original_max_position_embeddings": 16}
GROUPED = {"num_experts": 12, "moe_router_topk": 4, "moe_router_num_groups": 4, "moe_router_group_topk": 2}


@pytest.mark.parametrize(
    ("shape", "complaint"),
    [
        ({"family": "deepseek_v3"}, "model.kv_lora_rank = null: must be given for model.family=deepseek_v3"),
        ({"family": "mixtral", "kv_lora_rank": 8}, "model.kv_lora_rank = 8: must be null for model.family"),
        ({"q_lora_rank": 8}, "model.q_lora_rank = 8: must be null without kv_lora_rank"),
        (LATENT | {"kv_lora_rank": 0}, "model.kv_lora_rank = 0: must be a positive integer"),
        (LATENT | {"qk_rope_head_dim": 5}, "model.qk_rope_head_dim = 5: must be even"),
        (LATENT | {"head_dim": 16}, "model.head_dim = 16: must be null with kv_lora_rank"),
        ({"first_k_dense_replace": 4}, "model.first_k_dense_replace = 4: .* model.num_layers - 1 = 3"),
        ({"num_shared_experts": -1}, "model.num_shared_experts = -1"),
        (
            {"backend": "te"},
            "model.backend = 'te': must be auto or torch; te, for Transformer Engine's layers",
        ),
        (
            {"moe_router_score_function": "tanh"},
            "model.moe_router_score_function = 'tanh': .*softmax, sigmoid",
        ),
        (
            {"moe_router_score_function": "sigmoid", "norm_topk_prob": False},
            "model.norm_topk_prob = false: must be true",
        ),
        ({"moe_router_enable_expert_bias": True}, "model.moe_router_enable_expert_bias = true"),
        ({"moe_router_topk_scaling_factor": 0.0}, "model.moe_router_topk_scaling_factor = 0.0"),
        ({"moe_router_num_groups": 4}, "model.moe_router_group_topk = null: must be given"),
        (GROUPED | {"moe_router_num_groups": 5}, "model.moe_router_num_groups = 5: must be a divisor"),
        (GROUPED | {"moe_router_group_topk": 3}, "model.moe_router_group_topk = 3: must be a divisor"),
        (
            GROUPED | {"moe_router_group_experts": 4},
            "model.moe_router_group_experts = 4: .* group's 3 experts",
        ),
        (
            GROUPED | {"moe_router_group_topk": 5},
            "model.moe_router_group_topk = 5: must be between 1 and .* = 4",
        ),
        ({"moe_router_group_experts": 1}, "model.moe_router_group_experts = 1: must be null without"),
        (LATENT | {"latent_norm_eps": 0.0}, "model.latent_norm_eps = 0.0: must be positive"),
        ({"latent_norm_eps": 1e-6}, "model.latent_norm_eps = 1e-06: must be null without kv_lora_rank"),
        ({"rope_scaling": RopeScaling(**YARN)}, "model.rope_scaling.factor = 4.0: must be null without kv"),
        ({"path": ""}, "model.path = '': must be a folder"),
        ({"vocab_size": 0}, "model.vocab_size = 0: must be a positive integer"),
        (GROUPED | {"moe_router_group_topk": 1}, "model.moe_router_topk = 4: must be at most 1 groups of 3"),
    ],
)
def test_a_wrong_shape_is_told_by_field_value_and_what_is_allowed(shape: dict, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        ModelConfig(**shape)


def test_heads_of_latent_attention_have_plain_and_rotated_channels() -> None:
    model = ModelConfig(**LATENT, qk_nope_head_dim=10, qk_rope_head_dim=6)
    assert model.channels_per_head == 16


def test_layers_with_experts_and_the_width_of_the_shared_ones() -> None:
    model = ModelConfig(num_layers=5, first_k_dense_replace=2, num_shared_experts=2, moe_ffn_hidden_size=24)
    assert (model.num_moe_layers, model.shared_ffn_hidden_size) == (3, 48)
    assert ModelConfig().shared_ffn_hidden_size is None


def test_groups_score_as_many_experts_as_each_gives_or_as_is_said() -> None:
    assert ModelConfig().counted_group_experts is None
    assert ModelConfig(**GROUPED).counted_group_experts == 2
    assert ModelConfig(**GROUPED, moe_router_group_experts=1).counted_group_experts == 1
    taken = GROUPED | {"moe_router_group_topk": 3}
    assert ModelConfig(**taken, moe_router_group_experts=1).moe_router_group_topk == 3


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"factor": None}, "original_max_position_embeddings = 16: must be given with factor, or neither"),
        (
            {"original_max_position_embeddings": None},
            "original_max_position_embeddings = null: must be given",
        ),
        ({"factor": 1.0}, "factor = 1.0: must be > 1"),
        ({"original_max_position_embeddings": 0}, "original_max_position_embeddings = 0: must be >= 1"),
        ({"beta_slow": 0.0}, "beta_slow = 0.0: must be > 0"),
        ({"beta_fast": 0.5}, "beta_fast = 0.5: must be >= 1.0"),
        ({"mscale": 0.7}, "mscale = 0.7: must be 1 unless mscale_all_dim is given"),
        ({"mscale_all_dim": -1.0}, "mscale_all_dim = -1.0: must be >= 0"),
    ],
)
def test_angles_that_cannot_be_scaled_so_are_told(changes: dict, complaint: str) -> None:
    with pytest.raises(ConfigError, match=f"model.rope_scaling.{complaint}"):
        RopeScaling(**YARN | changes)


def test_plain_angles_need_nothing() -> None:
    assert not ModelConfig().rope_scaling.is_on
    assert ModelConfig(**LATENT, rope_scaling=RopeScaling(**YARN)).rope_scaling.is_on
