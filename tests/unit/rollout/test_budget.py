"""The KV cache's size in bytes, against published model shapes and by counting."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexfloor.rollout.budget import kv_bytes_per_token, slots_for_budget

MIXTRAL_8X7B = {"num_layers": 32, "num_groups": 8, "head_dim": 128}
QWEN3_30B = {"num_layers": 48, "num_groups": 4, "head_dim": 128}


@pytest.mark.parametrize(("model", "published"), [(MIXTRAL_8X7B, 131_072), (QWEN3_30B, 98_304)])
def test_bytes_per_token_are_those_of_published_models(model: dict[str, int], published: int) -> None:
    assert kv_bytes_per_token(**model, dtype_bytes=2) == published
    assert kv_bytes_per_token(**model, dtype_bytes=8) == 4 * published


@given(budget=st.integers(1, 10**12), tokens=st.integers(1, 10**5))
def test_slots_fill_the_budget_and_never_pass_it(budget: int, tokens: int) -> None:
    slots = slots_for_budget(kv_budget_bytes=budget, tokens_per_slot=tokens, bytes_per_token=131_072)
    assert slots * tokens * 131_072 <= budget < (slots + 1) * tokens * 131_072
