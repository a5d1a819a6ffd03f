"""A few steps in full: a bar for each rank, coloured by the state that held it.

Invariants:
- every interval of the steps is drawn: its idle part light and hatched, dotted while a rank is released,
  darker while it trains early;
- no shrink is too short to be seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from flexfloor.ledger.palette import COLOUR, EARLY_COLOUR, IDLE_LOOK, RELEASED_LOOK, SHRINK_LOOK
from flexfloor.ledger.types import Interval, State, StepRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BAR_HEIGHT = 0.78
"""Height of a rank's bar; rows are 1 apart."""

MAX_RANK_LABELS = 16
"""More labels than this run into each other."""

Bar = tuple[int, float, float]
"""Rank, begin and length in seconds of the run."""


def draw_rows(axes: Axes, steps: Sequence[Sequence[StepRecord]], starts: Sequence[float]) -> None:
    """Draw the intervals of the steps, which start at `starts` (seconds of the run), rank 0 on top."""
    bars = busy_bars(steps, starts)
    for state in State:
        if state is not State.SHRINKING:
            _draw_bars(axes, bars[state], color=COLOUR[state], linewidth=0)
    _draw_bars(axes, early_bars(steps, starts), color=EARLY_COLOUR, linewidth=0)
    _draw_bars(axes, idle_bars(steps, starts), **IDLE_LOOK)
    _draw_bars(axes, released_bars(steps, starts), **RELEASED_LOOK)
    _draw_bars(axes, bars[State.SHRINKING], **SHRINK_LOOK)
    num_ranks = max(len(records) for records in steps)
    rows = range(0, num_ranks, -(-num_ranks // MAX_RANK_LABELS))
    axes.set_yticks(list(rows), [f"rank {row}" for row in rows])
    axes.set_ylim(num_ranks - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)


def busy_bars(steps: Sequence[Sequence[StepRecord]], starts: Sequence[float]) -> dict[State, list[Bar]]:
    """For each state the bars of its intervals, without idle parts and what the others below have."""
    bars: dict[State, list[Bar]] = {state: [] for state in State}
    for start, records in zip(starts, steps, strict=True):
        for record in records:
            for each in record.intervals:
                if each.is_released or each.is_early:
                    continue
                length = each.seconds - each.idle_seconds
                bars[each.state].append((record.rank, start + each.start_s, length))
    return bars


def idle_bars(steps: Sequence[Sequence[StepRecord]], starts: Sequence[float]) -> list[Bar]:
    """The bars of all idle parts."""
    return [
        (record.rank, start + each.end_s - each.idle_seconds, each.idle_seconds)
        for start, records in zip(starts, steps, strict=True)
        for record in records
        for each in record.intervals
        if each.idle_seconds > 0
    ]


def released_bars(steps: Sequence[Sequence[StepRecord]], starts: Sequence[float]) -> list[Bar]:
    """The bars of all intervals in which a rank waits for a generation that it has left."""
    return _whole_bars(steps, starts, lambda each: each.is_released)


def early_bars(steps: Sequence[Sequence[StepRecord]], starts: Sequence[float]) -> list[Bar]:
    """The bars of all intervals in which a rank trains in a lease."""
    return _whole_bars(steps, starts, lambda each: each.is_early)


def _whole_bars(
    steps: Sequence[Sequence[StepRecord]], starts: Sequence[float], is_wanted: Callable[[Interval], bool]
) -> list[Bar]:
    return [
        (record.rank, start + each.start_s, each.seconds)
        for start, records in zip(starts, steps, strict=True)
        for record in records
        for each in record.intervals
        if is_wanted(each)
    ]


def _draw_bars(axes: Axes, bars: Sequence[Bar], **look: Any) -> None:
    if bars:
        rows, begins, lengths = zip(*bars, strict=True)
        axes.barh(rows, lengths, left=begins, height=BAR_HEIGHT, **look)
