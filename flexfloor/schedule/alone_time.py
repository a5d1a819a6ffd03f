"""Passes of ranks that have parted: those of a group of one, times what ranks are in each other's way.

They have no collective, and may share cores, memory or a link all the same. So for each number of ranks that
have parted one factor is measured: the median of what their passes took over what a group of one would take.
Numbers that were not measured are answered as if so many ranks shared what serves a few of them at full
speed; one rank is in nobody's way.

A machine that was held up when ranks parted must not keep them from it for ever: what is not measured again
fades, so that it is tried again after a while.

Invariants:
- A factor changes in `refit` alone.
- Without measurements all factors are 1.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from flexfloor.schedule.time_samples import TimeSamples

FADING = 0.95
"""What is left of a factor's distance from 1 after a rollout that did not measure it."""


class AloneTime:
    """Seconds of loads (ranks that have parted, rows, joining, context).

    Args:
        of_one: seconds [N] of loads [N, 4], whose first number is 1.
    """

    def __init__(self, of_one: Callable[[np.ndarray], np.ndarray]) -> None:
        self.samples = TimeSamples(4)
        self._of_one = of_one
        self._factors = {1.0: 1.0}
        self.unseen: dict[float, int] = {}
        """By ranks that have parted once: rollouts since then."""

    def rollout(self, ranks: float | None) -> None:
        """A rollout has ended in which so many ranks parted; None = none did."""
        self.unseen = {each: rollouts + 1 for each, rollouts in self.unseen.items()}
        if ranks is not None:
            self.unseen[ranks] = 0

    def refit(self) -> None:
        """Take in what was measured since the last time; after the group of one's."""
        loads, seconds = self.samples.arrays()
        ratios = seconds / np.maximum(self._alone(loads), 1e-12)
        measured = np.unique(loads[:, 0]).tolist()
        self._factors = {1.0: 1.0}
        for ranks in measured:
            factor = float(np.median(ratios[loads[:, 0] == ranks]))
            self._factors[ranks] = 1.0 + (factor - 1.0) * FADING ** self.unseen.get(ranks, 0)

    def seconds(self, loads: np.ndarray) -> np.ndarray:
        """Seconds [N] of loads [N, 4]."""
        asked, places = np.unique(loads[:, 0], return_inverse=True)
        factors = np.array([self._factor(ranks) for ranks in asked.tolist()])
        return factors[places.ravel()] * self._alone(loads)

    def median_relative_error(self) -> float:
        """Half of the measurements are nearer than this to the answer, relative to it; NaN without any."""
        return self.samples.median_relative_error(self.seconds)

    def _factor(self, ranks: float) -> float:
        if ranks in self._factors:
            return self._factors[ranks]
        below = max(each for each in self._factors if each < ranks)
        above = min((each for each in self._factors if each > ranks), default=None)
        least = self._factors[below]
        if above is not None:
            return max(least, ranks / above * self._factors[above])
        return least * ranks / below if least > 1.0 else least

    def _alone(self, loads: np.ndarray) -> np.ndarray:
        return self._of_one(np.column_stack([np.ones(len(loads)), loads[:, 1:]]))
