"""The steps of a run on one time line, in seconds from the start of its first step.

Within a step the ranks share a zero (the barrier before `Books.open_step`); steps are placed by
rank 0's clock. The clock of a resumed run begins anew: its first step follows the last one before it.

Invariants:
- steps are in order and do not overlap.
"""

from __future__ import annotations

from collections.abc import Sequence

from flexfloor.ledger.types import StepRecord


def step_starts(steps: Sequence[Sequence[StepRecord]]) -> list[float]:
    """Second of the run at which each step starts."""
    starts: list[float] = []
    shift = -steps[0][0].opened_s if steps else 0.0
    end = 0.0
    for records in steps:
        start = records[0].opened_s + shift
        if start < end:
            shift += end - start
            start = end
        starts.append(start)
        end = start + records[0].seconds
    return starts
