"""What a pass, a shrink and a token of training cost in time, as plans and decisions ask for it.

Whoever answers is a `CostModel`: `fitted_cost.FittedCost` from the run's own measurements, or a model of
known hardware.

Invariants:
- A pass takes the time of the rank that has most to do, so a load is that rank's.
- Times are at least 0 and finite.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

Number = float | np.ndarray
"""One number, or an array of the shape that all fields of its load have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassLoad:
    """One forward pass of an expert group during a rollout, or many of them as arrays of one shape."""

    ranks: Number
    """Active ranks of the expert group, at least 1."""
    rows: Number
    """Sequences that decode a token, on the rank that has most."""
    joining: Number
    """Tokens of prompts that join in the pass, on the rank that has most."""
    context: Number
    """Tokens in the KV cache that the decoding sequences attend to, on the rank that has most."""


def of_one_rank(load: PassLoad) -> PassLoad:
    """The same on each rank, in a group of one."""
    return PassLoad(
        ranks=np.ones_like(load.ranks), rows=load.rows, joining=load.joining, context=load.context
    )


class CostModel(Protocol):
    """Times of what a rollout and its training stage are made of."""

    @property
    def pass_error(self) -> float:
        """Relative, of what passes are taken to last; 0 where nothing was measured."""
        ...

    def pass_seconds(self, load: PassLoad) -> Number:
        """Seconds of a pass, in the shape of the load's fields."""
        ...

    def alone_seconds(self, load: PassLoad) -> Number:
        """Seconds of a pass of each of `load.ranks` ranks that have parted and host all experts."""
        ...

    def shrink_seconds(self, before: int, after: int, moved_tokens: Number) -> Number:
        """Seconds from `before` to `after` active ranks, with experts and the caches of `moved_tokens`."""
        ...

    def train_seconds(self, tokens: float) -> float:
        """Seconds of forward and backward over so many tokens on one rank."""
        ...
