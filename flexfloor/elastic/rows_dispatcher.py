"""Megatron's token dispatcher of training, which also takes rows that no expert gets.

From 0.19 on upstream's takes it that every row has its top-k experts, unless it drops rows for lack of
capacity. The rows that only make their number divisible by the ranks of a replica have none.
"""

from __future__ import annotations

from megatron.core.transformer.moe.token_dispatcher import MoEAlltoAllTokenDispatcher
from torch import Tensor


class RowsDispatcher(MoEAlltoAllTokenDispatcher):
    """Exchanges rows between the ranks of an expert group."""

    def preprocess(self, routing_map: Tensor) -> Tensor:
        """Number of rows of each expert held here, of the map [T, E]; and what the exchange needs to know."""
        counts = super().preprocess(routing_map)
        self.num_out_tokens = int(routing_map.sum())
        return counts
