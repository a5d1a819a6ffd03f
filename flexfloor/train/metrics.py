"""Sums over tokens, micro-batches and ranks, divided once, so that no mean is a mean of means.

Invariants:
- A micro-batch without tokens adds nothing, and no rank needs one with tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.distributed as dist

from flexfloor import device


class TokenSums:
    """Running sums of named values on this rank, in float64."""

    def __init__(self) -> None:
        self._sums: dict[str, torch.Tensor] = {}

    def add(self, name: str, values_N: torch.Tensor) -> None:
        """Add the sum of `values_N` to the sum called `name`."""
        total = values_N.detach().double().sum()
        self._sums[name] = self._sums[name] + total if name in self._sums else total

    def reduced(self, group: dist.ProcessGroup) -> dict[str, float]:
        """Return the sums over the ranks of `group`; all of them call this. A name that a rank lacks is 0."""
        known: list = [None] * group.size()
        dist.all_gather_object(known, sorted(self._sums), group=group)
        names = sorted({name for each in known for name in each})
        nothing = torch.zeros((), dtype=torch.float64, device=device.current_device())
        sums = torch.stack([self._sums.get(name, nothing) for name in names])
        dist.all_reduce(sums, group=group)
        return dict(zip(names, sums.tolist(), strict=True))


def mean_over_updates(updates: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return each metric's mean over the optimizer steps that report it: a skipped one reports few."""
    names = dict.fromkeys(name for metrics in updates for name in metrics)
    reported = {name: [metrics[name] for metrics in updates if name in metrics] for name in names}
    return {name: sum(values) / len(values) for name, values in reported.items()}
