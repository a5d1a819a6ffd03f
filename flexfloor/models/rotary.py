"""Rotary embedding of packed rows, each by the angles of its own position.

Shapes: T rows, N heads, D rotated channels.
"""

from __future__ import annotations

import torch
from torch import Tensor


def angles_and_scale(found: Tensor | tuple[Tensor, float]) -> tuple[Tensor, float]:
    """What Megatron's rotary embedding gives, as angles and what rotated channels are multiplied by.

    Plain angles come alone and multiply by 1; YaRN's come with their factor.
    """
    return found if isinstance(found, tuple) else (found, 1.0)


def rotate_rows(x_TND: Tensor, freqs_TD: Tensor, scale: float = 1.0) -> Tensor:
    """Rotary embedding of each row by its own angles, halves paired as in GPT-NeoX.

    Args:
        x_TND: [T, N, D] queries or keys.
        freqs_TD: [T, D] angles in radians, the two halves equal.
        scale: multiplies what comes out.
    """
    cos, sin = ((scale * turned).to(x_TND.dtype)[:, None] for turned in (freqs_TD.cos(), freqs_TD.sin()))
    first, second = x_TND.chunk(2, -1)
    return x_TND * cos + torch.cat((-second, first), -1) * sin


def split_pairs(x: Tensor) -> Tensor:
    """Channels [..., D] that pair neighbours, as DeepSeek's do, in the halves that `rotate_rows` pairs.

    Scores do not change by it: queries and keys are reordered alike.
    """
    return torch.cat((x[..., 0::2], x[..., 1::2]), -1)
