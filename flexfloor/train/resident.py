"""What training keeps on a rank while the rank generates, in bytes: plain arithmetic on the parameters."""

from __future__ import annotations

import torch
from torch import nn

FLOAT32 = torch.float32.itemsize


def training_bytes(
    model: nn.Module,
    *,
    dense_copies: int = 1,
    expert_copies: int = 1,
    keeps_reference: bool = False,
    keeps_optimizer: bool = True,
) -> int:
    """Gradients, master weights and Adam's two moments of the parameters of `model`.

    Args:
        dense_copies, expert_copies: ranks that share out the optimizer's state of a dense parameter and of
            an expert; 1 where each rank holds all of it.
        keeps_reference: whether a second policy lies beside them.
        keeps_optimizer: whether master weights and moments do.
    """
    total = 0
    for weight in model.parameters():
        wide = max(FLOAT32, weight.element_size())
        state = 2 * wide + (FLOAT32 if weight.element_size() < FLOAT32 else 0) if keeps_optimizer else 0
        # Megatron's mark of a parameter that is not on every rank: an expert's.
        copies = dense_copies if getattr(weight, "allreduce", True) else expert_copies
        reference = weight.element_size() if keeps_reference else 0
        total += weight.numel() * (wide + reference) + -(-weight.numel() * state // copies)
    return total
