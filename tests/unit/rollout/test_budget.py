"""How many sequences a KV budget holds, by counting."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flexfloor.rollout.budget import slots_for_budget


@given(budget=st.integers(1, 10**12), tokens=st.integers(1, 10**5))
def test_slots_fill_the_budget_and_never_pass_it(budget: int, tokens: int) -> None:
    slots = slots_for_budget(kv_budget_bytes=budget, tokens_per_slot=tokens, bytes_per_token=131_072)
    assert slots * tokens * 131_072 <= budget < (slots + 1) * tokens * 131_072
