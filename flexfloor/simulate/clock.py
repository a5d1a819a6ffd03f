"""From passes to seconds: when each pass and each shrink of a group ended.

Invariants:
- A pass takes what the cost model says of its load; exchanges and shrinks stand between two passes.
- Ranks that part begin at the same time, and each ends with its own last pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from flexfloor.schedule.cost import CostModel
from flexfloor.simulate.group import Group, Shrunk
from flexfloor.simulate.lockstep import Lockstep


@dataclass(frozen=True, slots=True, kw_only=True)
class ShrinkSpan:
    """A shrink in seconds from the start of the rollout; ranks that part do so in the last one."""

    start_s: float
    end_s: float
    before: int
    after: int
    """Ranks that stay; of ranks that part, as many as before."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Clock:
    """Seconds of one group's rollout, from its start."""

    ends: np.ndarray
    """[passes + 1]: when so many passes had been run by the group, shrinks before them included."""
    shrinks: tuple[ShrinkSpan, ...]
    own_ends: Mapping[int, float] = field(default_factory=dict)
    """By position: when each rank that has parted had generated; none where the group stayed together."""

    @property
    def end(self) -> float:
        """When the group had generated, to its last rank."""
        return max((float(self.ends[-1]), *self.own_ends.values()))

    def left(self, position: int) -> float | None:
        """When a rank was released; None = it stayed with the group to the end."""
        for each in self.shrinks:
            if position >= each.after:
                return each.end_s
        if not self.own_ends:
            return None
        return self.own_ends.get(position, self.shrinks[-1].end_s)


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
        # After the last pass of a group its ranks part, and have no next one together.
        if each.after_passes < group.passes:
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
    if group.parted is None:
        return Clock(ends=ends, shrinks=tuple(spans))
    size, start = group.parted.size, max([float(ends[-1]), *(span.end_s for span in spans)])
    apart = start + float(cost.shrink_seconds(size, 1, group.parted.moved_tokens))
    spans.append(ShrinkSpan(start_s=start, end_s=apart, before=size, after=size))
    own = {position: apart + _alone_seconds(each, cost) for position, each in group.parted.alone.items()}
    return Clock(ends=ends, shrinks=tuple(spans), own_ends=own)


def _seconds(shrunk: Shrunk, cost: CostModel) -> float:
    return float(cost.shrink_seconds(shrunk.before, shrunk.after, shrunk.moved_tokens))


def _alone_seconds(alone: Lockstep, cost: CostModel) -> float:
    return float(np.sum(cost.alone_seconds(alone.log.load())))
