"""The books balance: world x wall time of a step = sum over states (Promise 4).

A step ends when the last rank has closed its books; until then the others wait, and `settle` writes
that wait down, so that all ranks' accounts end together.

Invariants:
- `settle` changes no interval, it only appends one wait, and all records then end together;
- `check_tiling` passes exactly when each rank's intervals tile the step and the sums agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from flexfloor.ledger.types import Interval, State, StepRecord

JOIN = "join"
"""Stage of the wait for the last rank at the end of a step."""

TOLERANCE_SECONDS = 1e-6
"""Rounding that is allowed where two accounts must agree."""


def settle(records: Sequence[StepRecord]) -> tuple[StepRecord, ...]:
    """The records in rank order, each extended by its wait for the rank that closed last."""
    wall = max(record.seconds for record in records)
    return tuple(_extend(record, wall) for record in sorted(records, key=lambda record: record.rank))


def _extend(record: StepRecord, wall: float) -> StepRecord:
    if record.seconds == wall:
        return record
    wait = Interval(start_s=record.seconds, end_s=wall, state=State.WAITING, stage=JOIN)
    return replace(record, seconds=wall, intervals=(*record.intervals, wait))


def state_seconds(records: Sequence[StepRecord]) -> dict[State, float]:
    """Rank-seconds that each state held, over all ranks of a step."""
    seconds = dict.fromkeys(State, 0.0)
    for record in records:
        for interval in record.intervals:
            seconds[interval.state] += interval.seconds
    return seconds


def check_tiling(records: Sequence[StepRecord]) -> None:
    """Check Promise 4 on the settled records of one step.

    Raises:
        AssertionError: naming rank, step and the gap or overlap, or the sums that disagree.
    """
    assert records, "no record to check"
    step, wall = records[0].step, records[0].seconds
    ranks = [record.rank for record in records]
    assert ranks == list(range(len(records))), f"step {step}: records of ranks {ranks}"
    for record in records:
        assert record.step == step, f"rank {record.rank}: step {record.step} among records of step {step}"
        assert _close(record.seconds, wall), (
            f"rank {record.rank}, step {step}: ends at {record.seconds:.6f} s, rank 0 at {wall:.6f} s"
        )
        _check_rank(record)
    held = sum(state_seconds(records).values())
    assert _close(held / len(records), wall), (
        f"step {step}: {len(records)} ranks x {wall:.6f} s wall time, but states hold {held:.6f} s"
    )


def _check_rank(record: StepRecord) -> None:
    """Check that the intervals run from 0 to the end of the step, each from the end of the one before."""
    place = f"rank {record.rank}, step {record.step}"
    edge = Interval(start_s=0.0, end_s=0.0, state=State.WAITING, stage="start of step")
    end = Interval(start_s=record.seconds, end_s=record.seconds, state=State.WAITING, stage="end of step")
    for before, after in pairwise((edge, *record.intervals, end)):
        gap = after.start_s - before.end_s
        assert _close(gap, 0.0), (
            f"{place}: {'gap' if gap > 0 else 'overlap'} of {abs(gap):.6f} s between {before.stage} "
            f"(to {before.end_s:.6f} s) and {after.stage} (from {after.start_s:.6f} s)"
        )


def _close(left: float, right: float) -> bool:
    return abs(left - right) <= TOLERANCE_SECONDS
