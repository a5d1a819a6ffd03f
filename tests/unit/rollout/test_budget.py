"""The KV cache's size in bytes, against published model shapes and by counting."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexfloor.models.config import ModelConfig
from flexfloor.rollout.budget import kv_bytes_per_token, slots_for_budget

MIXTRAL_8X7B = ModelConfig(
    num_layers=32, hidden_size=4096, num_attention_heads=32, num_query_groups=8, dtype="bfloat16"
)
QWEN3_30B = ModelConfig(
    num_layers=48,
    hidden_size=2048,
    num_attention_heads=32,
    num_query_groups=4,
    head_dim=128,
    dtype="bfloat16",
)


@pytest.mark.parametrize(("model", "published"), [(MIXTRAL_8X7B, 131_072), (QWEN3_30B, 98_304)])
def test_bytes_per_token_are_those_of_published_models(model: ModelConfig, published: int) -> None:
    assert kv_bytes_per_token(model) == published


@pytest.mark.parametrize(("dtype", "factor"), [("bfloat16", 1), ("float32", 2), ("float64", 4)])
def test_bytes_follow_the_dtype(dtype: str, factor: int) -> None:
    narrow = ModelConfig(num_layers=2, dtype="bfloat16")
    assert kv_bytes_per_token(ModelConfig(num_layers=2, dtype=dtype)) == factor * kv_bytes_per_token(narrow)


@given(budget=st.integers(1, 10**12), tokens=st.integers(1, 10**5))
def test_slots_fill_the_budget_and_never_pass_it(budget: int, tokens: int) -> None:
    slots = slots_for_budget(MIXTRAL_8X7B, kv_budget_bytes=budget, tokens_per_slot=tokens)
    assert slots * tokens * 131_072 <= budget < (slots + 1) * tokens * 131_072
