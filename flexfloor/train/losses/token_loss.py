"""What every loss returns: a value for each trained token, and what is worth watching beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TokenLoss:
    """Losses of the N trained tokens of a micro-batch."""

    loss_N: torch.Tensor
    """[N], tied to the graph."""
    measures: Mapping[str, torch.Tensor] = field(default_factory=dict)
    """Name to [N], without gradient; reported as the mean over all tokens of the mini-batch."""
