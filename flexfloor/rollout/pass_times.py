"""How long the passes of a rollout took, in stretches of like passes, for the cost model.

Invariants:
- A stretch has passes of one size of the group, either all with prompts that join or all without.
- Its seconds are the median's, so that one pass that the machine held up does not count; of ranks that have
  parted the mean's, because ranks that share cores are held up by turns, which adds up.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

import numpy as np

from flexfloor.schedule.cost import PassLoad
from flexfloor.schedule.fitted_cost import PassSample

STRETCH = 8
"""Most passes of a stretch."""


class PassTimes:
    """Collects while the rollout runs.

    Args:
        middle: of the seconds of a stretch.
    """

    def __init__(self, middle: Callable[[Sequence[float]], float] = statistics.median) -> None:
        self._middle = middle
        self._closed: list[PassSample] = []
        self._loads: list[tuple[int, int, int, int]] = []
        self._seconds: list[float] = []

    def note(self, *, ranks: int, rows: int, joining: int, context: int, seconds: float) -> None:
        """A pass is done; the numbers are those of `PassLoad`."""
        if self._loads and (len(self._loads) == STRETCH or not self._is_like(ranks, joining)):
            self._close()
        self._loads.append((ranks, rows, joining, context))
        self._seconds.append(seconds)

    def samples(self, *, first_half: bool = False) -> tuple[PassSample, ...]:
        """One sample a stretch.

        Args:
            first_half: only of the earlier stretches: in later ones others that share a core may have ended.
        """
        if self._loads:
            self._close()
        return tuple(self._closed[: (len(self._closed) + 1) // 2] if first_half else self._closed)

    def _is_like(self, ranks: int, joining: int) -> bool:
        return self._loads[-1][0] == ranks and (self._loads[-1][2] > 0) == (joining > 0)

    def _close(self) -> None:
        ranks, rows, joining, context = np.mean(self._loads, axis=0).tolist()
        load = PassLoad(ranks=int(ranks), rows=rows, joining=joining, context=context)
        self._closed.append(PassSample(load=load, seconds=self._middle(self._seconds)))
        self._loads, self._seconds = [], []
