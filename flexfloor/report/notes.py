"""What a panel of the page leaves out, in words that stand beside it.

Invariants:
- a run that the page holds whole has no note, but for lengths that it never kept.
"""

from __future__ import annotations

from flexfloor.ledger.pictures import TRACE_FILE
from flexfloor.report.lengths import Lengths
from flexfloor.report.table import Table
from flexfloor.report.thin import MAX_STEPS
from flexfloor.report.timeline import TimeLine
from flexfloor.track.lengths import LENGTHS_FILE


def timeline_notes(timeline: TimeLine) -> list[str]:
    """Which steps are drawn from samples, and how coarse those are."""
    coarse = [block for block in timeline.blocks if not block.is_full]
    if not coarse:
        return []
    size = max(block.last - block.first + 1 for block in coarse)
    blocks = "a step" if size == 1 else f"a block of up to {size} steps"
    later = (
        "" if timeline.full_from is None else f" Steps from {timeline.full_from} on are shown as they were."
    )
    return [
        f"Steps {coarse[0].first} to {coarse[-1].last} are thinned: {blocks} is divided into a few equal "
        f"columns, and each is shown as what held most of it.{later} {TRACE_FILE} holds every interval."
    ]


def table_notes(table: Table) -> list[str]:
    """Which steps have no row."""
    if len(table.rows) == table.num_steps:
        return []
    return [f"Steps before {table.rows[0].step} have no row here; the sum counts them."]


def length_notes(lengths: Lengths | None) -> list[str]:
    """Why there are no lengths or predictions, and what is left out of them."""
    if lengths is None:
        return [f"This run has kept no response lengths: its folder has no {LENGTHS_FILE}, or an empty one."]
    notes = []
    if len(lengths.steps) < lengths.num_steps:
        notes.append(
            f"{len(lengths.steps):,} of {lengths.num_steps:,} steps have a histogram of their own; "
            "that of all steps counts all."
        )
    if lengths.predicted is None:
        notes.append("No length was predicted in this run.")
    elif len(lengths.predicted.points) < lengths.predicted.num_responses:
        notes.append(
            f"{len(lengths.predicted.points):,} of {lengths.predicted.num_responses:,} predicted responses "
            "are drawn, evenly spread over the steps; the coverage counts all."
        )
    return notes


def curve_notes(num_points: int) -> list[str]:
    """How many of the points of the longest curve are drawn."""
    if num_points <= MAX_STEPS:
        return []
    return [f"{MAX_STEPS:,} of {num_points:,} steps are drawn, evenly spread."]
