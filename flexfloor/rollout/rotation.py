"""Rotary embedding of the fast path, from tables of each position's angles."""

from __future__ import annotations

import torch
from torch import Tensor


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
