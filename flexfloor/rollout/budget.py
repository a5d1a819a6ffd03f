"""How many live sequences a KV budget holds: plain arithmetic, before any model exists.

Invariants:
- The slots of a budget never need more bytes than the budget.
- One slot more would need more.
"""

from __future__ import annotations

from flexfloor.models.config import DTYPE_BYTES, ModelConfig


def kv_bytes_per_token(model: ModelConfig) -> int:
    """Bytes that one cached token takes on a rank: a key and a value for every KV head of every layer."""
    channels = model.num_query_groups * model.channels_per_head
    return 2 * model.num_layers * channels * DTYPE_BYTES[model.dtype]


def slots_for_budget(model: ModelConfig, *, kv_budget_bytes: int, tokens_per_slot: int) -> int:
    """Sequences of up to `tokens_per_slot` cached tokens that fit in `kv_budget_bytes`; 0 = not even one."""
    return kv_budget_bytes // (kv_bytes_per_token(model) * tokens_per_slot)
