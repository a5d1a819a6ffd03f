"""How many live sequences a KV budget holds: plain arithmetic, before any model exists.

Invariants:
- The slots of a budget never need more bytes than the budget.
- One slot more would need more.
"""

from __future__ import annotations

from flexfloor.models.config import DTYPE_BYTES, ModelConfig


def kv_bytes_per_token(*, num_layers: int, num_groups: int, head_dim: int, dtype_bytes: int) -> int:
    """Bytes that one cached token takes on a rank: a key and a value for every KV head of every layer."""
    return 2 * num_layers * num_groups * head_dim * dtype_bytes


def model_kv_bytes_per_token(model: ModelConfig) -> int:
    """`kv_bytes_per_token` of a model as its settings describe it."""
    return kv_bytes_per_token(
        num_layers=model.num_layers,
        num_groups=model.num_query_groups,
        head_dim=model.channels_per_head,
        dtype_bytes=DTYPE_BYTES[model.dtype],
    )


def slots_for_budget(*, kv_budget_bytes: int, tokens_per_slot: int, bytes_per_token: int) -> int:
    """Sequences of up to `tokens_per_slot` cached tokens that fit in `kv_budget_bytes`; 0 = not even one."""
    return kv_budget_bytes // (bytes_per_token * tokens_per_slot)
