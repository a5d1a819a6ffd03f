"""RMS norm by PyTorch that also works on a rank's share of the rows.

Under sequence parallelism each rank of a replica norms other rows, or heads, so that the gradient of the
weight is summed over them. Upstream's PyTorch norm refuses to be built there.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from megatron.core.transformer.torch_norm import WrappedTorchNorm
from megatron.core.transformer.transformer_config import TransformerConfig


class RowsNorm(torch.nn.RMSNorm):
    """RMS norm over the last dimension."""

    def __init__(self, config: TransformerConfig, hidden_size: int, eps: float = 1e-5, **unused: Any):
        super().__init__(hidden_size, eps=eps)
        # Megatron sums the gradients of what is so marked over the replica's ranks.
        setattr(self.weight, "sequence_parallel", config.sequence_parallel)  # noqa: B010


def use_rows_norm(submodules: Any) -> None:
    """Put `RowsNorm` wherever the dataclass `submodules` names upstream's PyTorch norm."""
    for field in dataclasses.fields(submodules):
        if getattr(submodules, field.name) is WrappedTorchNorm:
            setattr(submodules, field.name, RowsNorm)
