"""How many tokens a KV budget holds, by counting."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flexfloor.rollout.budget import tokens_in_budget


@given(budget=st.integers(1, 10**12))
def test_tokens_fill_the_budget_and_never_pass_it(budget: int) -> None:
    tokens = tokens_in_budget(kv_budget_bytes=budget, bytes_per_token=131_072)
    assert tokens * 131_072 <= budget < (tokens + 1) * 131_072
