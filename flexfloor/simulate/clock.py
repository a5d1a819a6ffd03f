"""From passes to seconds: when each pass and each shrink of a group ended.

Invariants:
- A pass takes what the cost model says of its load; exchanges and shrinks stand between two passes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flexfloor.schedule.cost import CostModel
from flexfloor.simulate.group import Group, Shrunk


@dataclass(frozen=True, slots=True, kw_only=True)
class ShrinkSpan:
    """A shrink in seconds from the start of the rollout."""

    start_s: float
    end_s: float
    before: int
    after: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Clock:
    """Seconds of one group's rollout, from its start."""

    ends: np.ndarray
    """[passes + 1]: when so many passes had been run, shrinks before them included."""
    shrinks: tuple[ShrinkSpan, ...]

    @property
    def end(self) -> float:
        """When the group had generated."""
        return float(self.ends[-1])


def clock_of(group: Group, cost: CostModel, *, exchange_seconds: float = 0.0) -> Clock:
    """Time the passes and shrinks of a group that has run.

    Args:
        exchange_seconds: of each exchange of standings, with what is decided by it.
    """
    seconds = np.zeros(group.passes + 1)
    if group.passes:
        seconds[1:] = cost.pass_seconds(group.log.load())
    seconds[group.exchanges] += exchange_seconds
    lasted = [_seconds(each, cost) for each in group.shrinks]
    for each, shrink_seconds in zip(group.shrinks, lasted, strict=True):
        seconds[each.after_passes + 1] += shrink_seconds
    ends = np.cumsum(seconds)
    spans = [
        ShrinkSpan(
            start_s=float(ends[each.after_passes]),
            end_s=float(ends[each.after_passes]) + shrink_seconds,
            before=each.before,
            after=each.after,
        )
        for each, shrink_seconds in zip(group.shrinks, lasted, strict=True)
    ]
    return Clock(ends=ends, shrinks=tuple(spans))


def _seconds(shrunk: Shrunk, cost: CostModel) -> float:
    return float(cost.shrink_seconds(shrunk.before, shrunk.after, shrunk.moved_tokens))
