"""The names of steps and stages above the rows of ranks.

The stages are rank 0's: ranks leave from the highest position on, so it takes part in everything to
the end. A short stage's label stands beside it, with a line that leads to it.

Invariants:
- no two labels touch; where a step has no room for all, its shortest stages go unnamed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from flexfloor.ledger.labels import spread_labels
from flexfloor.ledger.palette import FAINT_INK, INK
from flexfloor.ledger.types import OTHER, StepRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Text

LEAST_SHARE = 0.004
"""A stage that takes less than this share of the picture's width is not named."""

MAX_SHIFT = 60.0
"""A label this many pixels away from its stage would seem to name another one."""

LABEL_GAP = 12.0
"""Pixels between neighbouring labels."""

Span = tuple[str, float, float]
"""Name, begin and end in seconds of the run."""


def stage_spans(records: Sequence[StepRecord], start: float) -> list[Span]:
    """The stages of rank 0 in the step that starts at `start`, a span for each unbroken stretch of one."""
    spans: list[Span] = []
    for stage, run in groupby(records[0].intervals, key=lambda interval: interval.stage):
        intervals = list(run)
        spans.append((stage, start + intervals[0].start_s, start + intervals[-1].end_s))
    return spans


def draw_strip(
    axes: Axes, rows: Axes, steps: Sequence[Sequence[StepRecord]], starts: Sequence[float]
) -> None:
    """Name steps and stages on `axes`, and mark on the `rows` below it where each begins."""
    axes.set_ylim(0, 1)
    axes.axis("off")
    for start, records in zip(starts, steps, strict=True):
        end = start + records[0].seconds
        _draw_step(axes, f"step {records[0].step}", start, end)
        rows.axvline(start, color=INK, linewidth=0.9)
        spans = [span for span in stage_spans(records, start) if _is_worth_naming(axes, span)]
        for edge in {edge for _, *edges in spans for edge in edges} - {start, end}:
            rows.axvline(edge, color=FAINT_INK, linewidth=0.6, linestyle=(0, (1, 2)))
        _draw_stages(axes, spans, (_pixels(axes, start), _pixels(axes, end)))


def _is_worth_naming(axes: Axes, span: Span) -> bool:
    left, right = axes.get_xlim()
    name, begin, end = span
    return name != OTHER and end - begin > LEAST_SHARE * (right - left)


def _draw_step(axes: Axes, name: str, begin: float, end: float) -> None:
    """A bracket over the step with its name, when the name is not wider than the step."""
    y = 0.66
    axes.annotate("", (begin, y), (end, y), arrowprops={"arrowstyle": "<->", "color": INK, "linewidth": 0.8})
    label = axes.text((begin + end) / 2, 0.86, name, ha="center", va="center", fontweight="bold", color=INK)
    if _width(label) > _pixels(axes, end) - _pixels(axes, begin):
        label.remove()


def _draw_stages(axes: Axes, spans: Sequence[Span], bounds: tuple[float, float]) -> None:
    """The labels of one step's stages, moved apart, each with a line to its stage."""
    labels = [
        axes.text(begin, 0.34, name.replace("_", " "), ha="center", va="center", fontsize=8, color=FAINT_INK)
        for name, begin, _ in spans
    ]
    stretches = [(_pixels(axes, begin), _pixels(axes, end)) for _, begin, end in spans]
    places = place_labels(stretches, [_width(label) for label in labels], bounds)
    to_seconds = axes.transData.inverted().transform
    for label, stretch, place in zip(labels, stretches, places, strict=True):
        if place is None:
            label.remove()
            continue
        x, foot = (to_seconds((pixel, 0.0))[0] for pixel in (place, _nearest(stretch, place)))
        label.set_x(x)
        axes.plot([x, foot], [0.18, 0.0], color=FAINT_INK, linewidth=0.6, clip_on=False)


def place_labels(
    stretches: Sequence[tuple[float, float]], widths: Sequence[float], bounds: tuple[float, float]
) -> list[float | None]:
    """Pixel of each label's centre; None for the shortest stretches when not all find room nearby."""
    kept = list(range(len(stretches)))
    while kept:
        places = spread_labels([stretches[i] for i in kept], [widths[i] for i in kept], bounds, gap=LABEL_GAP)
        if places is not None and all(
            abs(place - _nearest(stretches[i], place)) <= MAX_SHIFT
            for place, i in zip(places, kept, strict=True)
        ):
            found = dict(zip(kept, places, strict=True))
            return [found.get(i) for i in range(len(stretches))]
        kept.remove(min(kept, key=lambda i: stretches[i][1] - stretches[i][0]))
    return [None] * len(stretches)


def _nearest(stretch: tuple[float, float], place: float) -> float:
    """The pixel of the stretch that is nearest to `place`, a little inside it where it is long enough."""
    begin, end = stretch
    inset = min(9.0, (end - begin) / 2)
    return min(max(place, begin + inset), end - inset)


def _pixels(axes: Axes, seconds: float) -> float:
    return float(axes.transData.transform((seconds, 0.0))[0])


def _width(label: Text) -> float:
    """Width of the drawn label in pixels."""
    return label.get_window_extent().width
