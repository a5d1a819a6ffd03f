"""Grouped-query attention of the fast path, straight from a layer's parameters.

Shapes: T rows, H hidden, N query heads and G key/value heads of this rank, D channels of a head.
"""

from __future__ import annotations

import torch
from torch import Tensor

from flexfloor.models.attention import RolloutSelfAttention
from flexfloor.models.packed_attention import attend_packed
from flexfloor.rollout.context import DecodingRows, RolloutContext
from flexfloor.rollout.kernels.plain import Operators
from flexfloor.rollout.linear import pack


class FastAttention:
    """One layer's attention; made when a rollout begins."""

    def __init__(self, attention: RolloutSelfAttention, operators: Operators):
        self.operators = operators
        self.layer = attention.layer_number - 1
        self.config = attention.config
        self.num_groups = attention.num_query_groups_per_partition
        self.qkv = pack(attention.linear_qkv.weight)
        self.projection = pack(attention.linear_proj.weight)
        self.head_norm = _head_norm(attention)

    def __call__(self, normed_TH: Tensor, cos: Tensor, sin: Tensor, context: RolloutContext) -> Tensor:
        """[T, H] of normalised rows, the part of this rank's heads; T is at least 1."""
        config = self.config
        G, D = self.num_groups, config.kv_channels
        per_group = config.num_attention_heads // config.num_query_groups
        mixed = self.qkv(normed_TH).view(-1, G, per_group + 2, D)
        query, kept = self.operators.turn(mixed, cos, sin, self.head_norm, config.layernorm_epsilon)

        def decode(part: DecodingRows, planes: list[Tensor]) -> Tensor:
            return self.operators.attend(query[part.rows], planes, part, D**-0.5)

        def prefill(rows: slice, lengths: list[int]) -> Tensor:
            keys, values = kept[:, rows]
            return attend_packed(query[rows], keys, values, lengths)

        attended = context.attend_with(self.layer, kept, decode=decode, prefill=prefill)
        return self.projection(attended.flatten(1))


def _head_norm(attention: RolloutSelfAttention) -> Tensor | None:
    """[N / G + 1, D] norm weights of a group's queries and, last, its key; None without such norms."""
    if not attention.config.qk_layernorm:
        return None
    per_group = attention.config.num_attention_heads // attention.config.num_query_groups
    return torch.stack([attention.q_layernorm.weight] * per_group + [attention.k_layernorm.weight])
