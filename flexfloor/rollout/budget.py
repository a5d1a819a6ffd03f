"""What a KV budget holds: plain arithmetic, before any model exists.

Invariants:
- The tokens of a budget never need more bytes than the budget.
- One token more would need more.
"""

from __future__ import annotations


def tokens_in_budget(*, kv_budget_bytes: int, bytes_per_token: int) -> int:
    """Cached tokens that fit in `kv_budget_bytes`."""
    return kv_budget_bytes // bytes_per_token
