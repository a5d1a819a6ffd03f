"""Parameters of each family, against Hugging Face's classes of the same shapes."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM, DeepseekV3Config, MixtralConfig, Qwen3MoeConfig

from flexfloor.doctor.parameters import dense_parameters, expert_parameters, recomputed_parameters
from flexfloor.models.config import ModelConfig

VOCAB_SIZE = 320
THEIRS = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_local_experts": 6,
}


def count(config) -> int:
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in AutoModelForCausalLM.from_config(config).parameters())


def ours(**shape) -> int:
    model = ModelConfig(num_layers=3, hidden_size=64, moe_ffn_hidden_size=96, num_experts=6, **shape)
    return dense_parameters(model, VOCAB_SIZE) + 6 * expert_parameters(model)


@pytest.mark.parametrize("tie", [True, False])
@pytest.mark.parametrize("head_dim", [None, 24])
def test_mixtral(tie: bool, head_dim: int | None) -> None:
    shape = {"head_dim": head_dim, "intermediate_size": 96, "num_key_value_heads": 2}
    theirs = count(MixtralConfig(**THEIRS, **shape, tie_word_embeddings=tie))
    assert ours(tie_embeddings=tie, head_dim=head_dim) == theirs


def test_qwen3_moe() -> None:
    shape = {"head_dim": 24, "moe_intermediate_size": 96, "num_key_value_heads": 2}
    theirs = count(Qwen3MoeConfig(**THEIRS, **shape, tie_word_embeddings=False))
    assert ours(family="qwen3_moe", head_dim=24) == theirs


@pytest.mark.parametrize("query_rank", [None, 20])
@pytest.mark.parametrize("dense_layers", [0, 2])
def test_deepseek_v3(query_rank: int | None, dense_layers: int) -> None:
    attention = {
        "q_lora_rank": query_rank,
        "kv_lora_rank": 12,
        "qk_nope_head_dim": 10,
        "qk_rope_head_dim": 6,
        "v_head_dim": 14,
        "first_k_dense_replace": dense_layers,
    }
    sizes = {"intermediate_size": 112, "moe_intermediate_size": 96, "n_shared_experts": 2}
    theirs = count(DeepseekV3Config(**THEIRS, **attention, **sizes, n_group=1, num_key_value_heads=4))
    mine = {"ffn_hidden_size": 112, "num_shared_experts": 2, "moe_router_score_function": "sigmoid"}
    assert ours(family="deepseek_v3", **attention, **mine) == theirs


def test_a_token_meets_its_layers_once_more_where_they_are_recomputed() -> None:
    """Two layers, the first dense; hidden 4, 2 heads of 2 channels, 2 of 6 experts of width 3, one shared."""
    shape = {"num_layers": 2, "hidden_size": 4, "num_attention_heads": 2, "num_query_groups": 2}
    shape |= {"first_k_dense_replace": 1, "ffn_hidden_size": 7, "num_shared_experts": 1}
    model = ModelConfig(**shape, moe_ffn_hidden_size=3, num_experts=6, moe_router_topk=2)
    experts = 4 * 6 + 3 * 3 * 4 + 2 * 3 * 3 * 4
    plain = 2 * (4 * 4 * 4 + 2 * 4) + 3 * 4 * 7
    found = {recompute: recomputed_parameters(model, recompute) for recompute in ("none", "moe", "full")}
    assert found == {"none": 0, "moe": experts, "full": plain + experts}
