"""How many tokens each expert was given.

`violation` is the measure of Wang et al., "Auxiliary-Loss-Free Load Balancing Strategy for
Mixture-of-Experts", arXiv 2408.15664: how far an expert's load lies from the even one, relative to it.

Invariants:
- A row is counted once for each expert that it chose, by the rank that owns the row.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


class ExpertLoad:
    """Counts by MoE layer and expert."""

    def __init__(self, num_layers: int, num_experts: int, device: torch.device):
        self._counts = torch.zeros(num_layers, num_experts, dtype=torch.long, device=device)

    def add(self, layer: int, expert_TK: Tensor) -> None:
        """Count rows that chose these experts in MoE layer `layer`, from 0."""
        chosen = expert_TK.reshape(-1)
        # Not a bincount, for which a GPU stops to learn the greatest number.
        self._counts[layer].scatter_add_(0, chosen, torch.ones_like(chosen))

    def counts(self) -> np.ndarray:
        """Rows so far, int64 [layers, experts]."""
        return self._counts.cpu().numpy()


def violation(counts_LE: np.ndarray) -> np.ndarray:
    """|load - even load| / even load of each expert, float64 [layers, experts]; 0 where no row was routed."""
    even_L1 = counts_LE.mean(axis=1, keepdims=True)
    return np.abs(counts_LE - even_L1) / np.where(even_L1 > 0, even_L1, 1.0)
