"""Attention of one query row a sequence over what the sequence's slot of the cache holds.

Shapes: B sequences, N query heads, G key/value heads, C positions, D channels, V channels of a value.
"""

from __future__ import annotations

import torch
from torch import Tensor


def attend_heads(
    query_BND: Tensor, key_BGCD: Tensor, value_BGCV: Tensor, bias_BC: Tensor, scale: float
) -> Tensor:
    """[B, N, V]; -inf in the bias hides a position, `scale` multiplies the products."""
    B, N, D = query_BND.shape
    _, G, C, V = value_BGCV.shape
    query = query_BND.reshape(B * G, N // G, D)
    bias = bias_BC.repeat_interleave(G, 0)[:, None]
    scores = torch.baddbmm(bias, query, key_BGCD.view(B * G, C, D).transpose(1, 2), alpha=scale)
    return torch.bmm(scores.softmax(-1), value_BGCV.view(B * G, C, V)).view(B, N, V)
