"""How long a checkpoint may take to write or read, by the size of the model."""

from __future__ import annotations

import torch

_SLOWEST_BYTES_PER_SECOND = 20e6
_BYTES_PER_WEIGHT = 16
"""In float32: the weight itself, the optimizer's two moments, and a copy of the weight."""


def transfer_seconds(model: torch.nn.Module) -> float:
    """Longest that this rank's share of a checkpoint may take, at a rate that any file system reaches."""
    return (
        sum(weight.numel() for weight in model.parameters()) * _BYTES_PER_WEIGHT / _SLOWEST_BYTES_PER_SECOND
    )
