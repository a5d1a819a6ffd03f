"""All that the page of a run shows, gathered from the run's folder and thinned to what a page can hold.

Invariants:
- the size of what is gathered is bounded, whatever the number of steps, ranks and responses;
- what a page leaves out is said in its notes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from flexfloor.ledger.types import StepRecord
from flexfloor.report.lengths import Lengths, gather_lengths
from flexfloor.report.notes import curve_notes, length_notes, table_notes, timeline_notes
from flexfloor.report.table import Table, make_table
from flexfloor.report.thin import MAX_STEPS, thinned
from flexfloor.report.timeline import TimeLine, lay_out
from flexfloor.track import names
from flexfloor.track.lengths import LENGTHS_FILE, each_lengths
from flexfloor.track.metrics import series
from flexfloor.track.summary import Ends, summarize, validation_series

Points = list[tuple[int, float]]
"""Step and value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What stands above everything."""

    reward: Ends
    """Mean reward of the first and of the last `window` steps."""
    validation: Ends
    window: int
    first_step: int
    last_step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What a page shows, panel by panel."""

    run: str
    """Name of the run."""
    head: Head
    timeline: TimeLine
    table: Table
    lengths: Lengths | None
    """None when the run has kept no lengths."""
    curves: dict[str, Points]
    """By name; a curve that was never logged is empty."""
    notes: dict[str, list[str]]
    """By panel: what is left out, and why something is missing."""


def gather(
    folder: Path, steps: Sequence[Sequence[StepRecord]], metrics: Mapping[int, Mapping[str, float]]
) -> Page:
    """Gather the page of the run in `folder`.

    Args:
        folder: of the run, which is called as it is; its lengths are read here.
        steps: the run's ledger, at least one step.
        metrics: by step.

    Raises:
        FlexFloorError: a line before the last of the file of lengths is broken.
    """
    timeline = lay_out(steps)
    table = make_table(steps, series(metrics, "perf/response_tokens"))
    lengths = gather_lengths(each_lengths(folder / LENGTHS_FILE))
    curves = _curves(metrics)
    summary = summarize(metrics)
    return Page(
        run=folder.resolve().name,
        head=Head(
            reward=summary.reward,
            validation=summary.validation_mean,
            window=summary.window,
            first_step=steps[0][0].step,
            last_step=steps[-1][0].step,
        ),
        timeline=timeline,
        table=table,
        lengths=lengths,
        curves={name: thinned(points, MAX_STEPS) for name, points in curves.items()},
        notes={
            "timeline": timeline_notes(timeline),
            "table": table_notes(table),
            "lengths": length_notes(lengths),
            "curves": curve_notes(max(map(len, curves.values()))),
        },
    )


def _curves(metrics: Mapping[int, Mapping[str, float]]) -> dict[str, Points]:
    found = {
        "reward": series(metrics, names.REWARD),
        "validation": validation_series(metrics),
        "p50": series(metrics, names.LENGTH_P50),
        "p90": series(metrics, names.LENGTH_P90),
        "longest": series(metrics, names.LENGTH_MAX),
    }
    return {name: sorted(values.items()) for name, values in found.items()}
