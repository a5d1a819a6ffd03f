"""How many live sequences a KV budget holds: plain arithmetic, before any model exists.

Invariants:
- The slots of a budget never need more bytes than the budget.
- One slot more would need more.
"""

from __future__ import annotations


def slots_for_budget(*, kv_budget_bytes: int, tokens_per_slot: int, bytes_per_token: int) -> int:
    """Sequences of up to `tokens_per_slot` cached tokens that fit in `kv_budget_bytes`; 0 = not even one."""
    return kv_budget_bytes // (bytes_per_token * tokens_per_slot)
