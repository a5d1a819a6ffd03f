"""Who held each rank, as the page's time line draws it.

The line is a row of blocks, one a step, and each rank's block is a row of runs: stretches of one kind. The
newest steps are kept as the ledger has them. Where a run has more than the page can hold, a block of the
earlier steps is divided into equal columns, each shown as what held most of it, and several steps may share
a block.

Invariants:
- the runs of a full block tile it, with the ledger's edges to the microsecond;
- blocks are in order, do not overlap and hold every step once;
- whatever the run's length there are at most `max_full + max_coarse` runs, as long as that is a run a rank.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from flexfloor.ledger.clock import step_starts
from flexfloor.ledger.types import ROLLOUT, Interval, State, StepRecord
from flexfloor.report.thin import MAX_COARSE_RUNS, MAX_FULL_RUNS

LEAST_COLUMNS, MOST_COLUMNS = 4, 32
"""Columns of a coarse block."""
BLANK = -1
"""Kind of a column that lies mostly between two steps."""

Records = Sequence[StepRecord]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What a stretch of a rank's time can be."""

    state: State
    stage: str
    is_idle: bool = False
    """Own responses finished, experts still needed."""
    is_released: bool = False
    """The rank waits for a generation that it has left."""
    is_early: bool = False
    """The rank trains in a lease, while others may still generate."""
    is_active: bool = False
    """The rank takes part in the step's generation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One step of the time line, or several that are drawn as one."""

    first: int
    """Its first step."""
    last: int
    start_s: float
    """Seconds from the start of the run's first step."""
    seconds: float
    is_full: bool
    """Whether the runs are the ledger's intervals, not samples of them."""
    runs: list[list[int]]
    """By rank: microseconds and index of the kind, in turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLine:
    """The time line of a run."""

    kinds: list[Kind]
    blocks: list[Block]
    num_ranks: int
    """The most that a step had."""
    full_from: int | None
    """First step that is kept in full; None when not even the last one is."""


Stretch = tuple[float, float, Kind]
"""Begin and end in seconds of the step, and what it was."""


def lay_out(
    steps: Sequence[Records], max_full: int = MAX_FULL_RUNS, max_coarse: int = MAX_COARSE_RUNS
) -> TimeLine:
    """The time line of a run of at least one step.

    Args:
        steps: settled records of all steps, in order.
        max_full, max_coarse: the most runs of the newest steps, and of those before.
    """
    starts = step_starts(steps)
    num_ranks = max(len(records) for records in steps)
    kinds: dict[Kind, int] = {}
    cut = _first_full(steps, max_full)
    size, num_columns = _coarseness(cut, num_ranks, max_coarse)
    blocks = [
        _coarse_block(steps[i : min(i + size, cut)], starts[i : min(i + size, cut)], num_columns, kinds)
        for i in range(0, cut, size)
    ]
    blocks += [_full_block(steps[i], starts[i], kinds) for i in range(cut, len(steps))]
    return TimeLine(
        kinds=list(kinds),
        blocks=blocks,
        num_ranks=num_ranks,
        full_from=steps[cut][0].step if cut < len(steps) else None,
    )


def stretches(record: StepRecord) -> Iterator[Stretch]:
    """The intervals of a record, the idle part of one apart from the rest."""
    for each in record.intervals:
        begin, idle = each.start_s, each.idle_from_s
        if idle is not None and idle > begin:
            yield begin, idle, _kind(each)
            begin = idle
        if each.end_s > begin:
            yield begin, each.end_s, _kind(each, is_idle=idle is not None)


def _kind(each: Interval, is_idle: bool = False) -> Kind:
    return Kind(
        state=each.state,
        stage=each.stage,
        is_idle=is_idle,
        is_released=each.is_released,
        is_early=each.is_early,
        is_active=each.stage == ROLLOUT and each.state in (State.GENERATING, State.SHRINKING),
    )


def _first_full(steps: Sequence[Records], max_full: int) -> int:
    """Index of the first step that is kept in full; counted from the newest, while they fit."""
    room = max_full
    for index in range(len(steps) - 1, -1, -1):
        room -= sum(1 for record in steps[index] for _ in stretches(record))
        if room < 0:
            return index + 1
    return 0


def _coarseness(num_steps: int, num_ranks: int, max_coarse: int) -> tuple[int, int]:
    """Steps that share a block, and columns of a block, so that all stay within `max_coarse` runs."""
    if not num_steps:
        return 1, MOST_COLUMNS
    blocks = max(1, max_coarse // (num_ranks * LEAST_COLUMNS))
    size = -(-num_steps // blocks)
    columns = max_coarse // (num_ranks * -(-num_steps // size))
    return size, max(1, min(MOST_COLUMNS, columns))


def _full_block(records: Records, start: float, kinds: dict[Kind, int]) -> Block:
    runs = []
    for record in records:
        flat, edge = [], 0
        for _, end, kind in stretches(record):
            length = round(end * 1e6) - edge
            flat += [length, kinds.setdefault(kind, len(kinds))]
            edge += length
        runs.append(flat)
    step, seconds = records[0].step, records[0].seconds
    return Block(first=step, last=step, start_s=start, seconds=seconds, is_full=True, runs=runs)


def _coarse_block(
    steps: Sequence[Records], starts: Sequence[float], num_columns: int, kinds: dict[Kind, int]
) -> Block:
    begin, seconds = starts[0], starts[-1] + steps[-1][0].seconds - starts[0]
    found = [
        (record.rank, kinds.setdefault(kind, len(kinds)), start - begin + left, start - begin + right)
        for start, records in zip(starts, steps, strict=True)
        for record in records
        for left, right, kind in stretches(record)
    ]
    held = _held(np.array(found), max(map(len, steps)), len(kinds), np.linspace(0, seconds, num_columns + 1))
    return Block(
        first=steps[0][0].step,
        last=steps[-1][0].step,
        start_s=begin,
        seconds=seconds,
        is_full=False,
        runs=[_joined(row, seconds / num_columns) for row in held],
    )


def _held(found: np.ndarray, num_ranks: int, num_kinds: int, edges: np.ndarray) -> np.ndarray:
    """What held most of each column.

    Args:
        found: float64 [stretches, 4]: rank, kind, begin and end in seconds.
        edges: float64 [columns + 1], seconds.

    Returns:
        int64 [ranks, columns], kinds or BLANK.
    """
    rank, kind = found[:, 0].astype(int), found[:, 1].astype(int)
    seconds = np.zeros((len(edges) - 1, num_ranks, num_kinds + 1))  # the last kind is what is left blank
    for of_column, (left, right) in zip(seconds, pairwise(edges), strict=True):
        shared = np.clip(np.minimum(found[:, 3], right) - np.maximum(found[:, 2], left), 0.0, None)
        np.add.at(of_column, (rank, kind), shared)
    seconds[:, :, -1] = np.diff(edges)[:, None] - seconds.sum(axis=2)
    best = seconds.argmax(axis=2).T
    return np.where(best == num_kinds, BLANK, best)


def _joined(kinds: np.ndarray, column_s: float) -> list[int]:
    """The columns of a rank as runs: neighbours of one kind are one run."""
    flat: list[int] = []
    edge = 0
    for column, kind in enumerate(kinds.tolist(), start=1):
        length = round(column * column_s * 1e6) - edge
        edge += length
        if flat and flat[-1] == kind:
            flat[-2] += length
        else:
            flat += [length, kind]
    return flat
