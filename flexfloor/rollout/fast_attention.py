"""Grouped-query attention of the fast path, straight from a layer's parameters.

Shapes: T rows, H hidden, N query heads and G key/value heads of this rank, D channels of a head.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from flexfloor.models.attention import RolloutSelfAttention
from flexfloor.rollout.context import RolloutContext
from flexfloor.rollout.linear import pack


class FastAttention:
    """One layer's attention; made when a rollout begins."""

    def __init__(self, attention: RolloutSelfAttention):
        self.layer = attention.layer_number - 1
        self.config = attention.config
        self.num_groups = attention.num_query_groups_per_partition
        self.qkv = pack(attention.linear_qkv.weight)
        self.projection = pack(attention.linear_proj.weight)
        self.head_norm = _head_norm(attention)

    def __call__(self, normed_TH: Tensor, cos: Tensor, sin: Tensor, context: RolloutContext) -> Tensor:
        """[T, H] of normalised rows, the part of this rank's heads; `cos` and `sin` are those of `rotate`."""
        config = self.config
        G, D = self.num_groups, config.kv_channels
        per_group = config.num_attention_heads // config.num_query_groups
        mixed = self.qkv(normed_TH).view(-1, G, per_group + 2, D)
        turning = mixed[:, :, : per_group + 1]
        if self.head_norm is not None:
            turning = F.rms_norm(turning, (D,), eps=config.layernorm_epsilon) * self.head_norm
        rotated = rotate(turning.reshape(-1, G * (per_group + 1), D), cos, sin)
        query, key = rotated.view(-1, G, per_group + 1, D).split([per_group, 1], dim=2)
        value = mixed[:, :, per_group + 1]
        attended = context.attend(self.layer, query.reshape(-1, G * per_group, D), key[:, :, 0], value)
        return self.projection(attended.flatten(1))


def _head_norm(attention: RolloutSelfAttention) -> Tensor | None:
    """[N / G + 1, D] norm weights of a group's queries and, last, its key; None without such norms."""
    if not attention.config.qk_layernorm:
        return None
    per_group = attention.config.num_attention_heads // attention.config.num_query_groups
    return torch.stack([attention.q_layernorm.weight] * per_group + [attention.k_layernorm.weight])


def rotate(x_TND: Tensor, cos: Tensor, signed_sin: Tensor) -> Tensor:
    """Rotary embedding by swapping the halves of the channels and negating the sine of the first one.

    Args:
        cos, signed_sin: [T, 1, D] of each row's position, from `rotary_tables`.
    """
    return (x_TND * cos).addcmul_(x_TND.roll(x_TND.size(-1) // 2, -1), signed_sin)


def rotary_tables(freqs: Tensor, dtype: torch.dtype, scale: float = 1.0) -> tuple[Tensor, Tensor]:
    """(cosine, signed sine) [positions, 1, D] for `rotate` of angles [positions, 1, D], times `scale`."""
    first, second = (scale * freqs.sin()).to(dtype).chunk(2, -1)
    return (scale * freqs.cos()).to(dtype), torch.cat((-first, second), -1)
