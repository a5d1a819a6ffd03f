"""The picture of what is gained and what it costs: throughput against tokens per occupied second.

Every schedule is a point; up and to the right is better. What is simulated says so.

Invariants:
- Every point is inside of the axes, and no two labels touch.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flexfloor.ledger.palette import COLOUR, FAINT_INK, INK
from flexfloor.ledger.timeline import LOOK
from flexfloor.ledger.types import State
from flexfloor.simulate.comparison import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Point = tuple[float, float]
MARGIN = 0.18
"""Of the range of the points, around them, for their labels."""
LABEL_WIDTH, LABEL_HEIGHT = 0.2, 0.042
"""Of the axes: what a label takes at most."""


def draw_frontier(
    results: Sequence[Result], path: Path, *, title: str, trade_off: Sequence[Result] = ()
) -> Path:
    """Write the picture as PNG and return `path`.

    Args:
        results: the first is what the others are compared with.
        trade_off: points of one schedule, joined by a line.
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context(LOOK):
        figure = Figure(figsize=(6.4, 4.8), dpi=150)
        FigureCanvasAgg(figure)
        axes = figure.add_axes((0.11, 0.12, 0.85, 0.76))
        _draw(axes, results, trade_off)
        figure.text(0.11, 0.95, "Simulated: throughput against occupied time", fontsize=11, fontweight="bold")
        figure.text(0.11, 0.905, title, fontsize=8)
        figure.savefig(path)
    return path


def label_heights(points: Sequence[Point]) -> list[float]:
    """Where the label of each point goes, moved up from its point as far as those below it demand.

    Args:
        points: in shares of the axes' width and height; a label begins at its point.
    """
    placed: dict[int, float] = {}
    for index in sorted(range(len(points)), key=lambda each: (points[each][1], each)):
        x, height = points[index]
        for other, taken in sorted(placed.items(), key=lambda item: item[1]):
            if abs(points[other][0] - x) < LABEL_WIDTH and abs(taken - height) < LABEL_HEIGHT:
                height = taken + LABEL_HEIGHT
        placed[index] = height
    return [placed[index] for index in range(len(points))]


def _draw(axes: Axes, results: Sequence[Result], trade_off: Sequence[Result]) -> None:
    base = results[0]
    shown = [*results, *trade_off]
    points = [_point(each, base) for each in shown]
    line = points[len(results) :]
    axes.axvline(1.0, color=FAINT_INK, linewidth=0.6, linestyle=(0, (1, 2)))
    axes.axhline(1.0, color=FAINT_INK, linewidth=0.6, linestyle=(0, (1, 2)))
    axes.plot([x for x, _ in line], [y for _, y in line], color=COLOUR[State.TRAINING], linewidth=1.0)
    left, right = _around([x for x, _ in points])
    bottom, top = _around([y for _, y in points])
    axes.set_xlim(left, right)
    axes.set_ylim(bottom, top)
    shares = [((x - left) / (right - left), (y - bottom) / (top - bottom)) for x, y in points]
    heights = label_heights(shares)
    for index, result in enumerate(shown):
        is_fixed, is_on_line = result.policy.shrink == "never", index >= len(results)
        colour = INK if is_fixed else COLOUR[State.TRAINING if is_on_line else State.GENERATING]
        marker = "s" if is_fixed else "." if is_on_line else "o"
        axes.plot(*points[index], marker=marker, color=colour, linestyle="")
        place = (shares[index][0] + 0.012, heights[index] + 0.008)
        size = 7 if is_on_line else 9
        axes.text(*place, result.policy.name, transform=axes.transAxes, fontsize=size, color=colour)
    axes.set_xlabel(f"tokens per second over {base.policy.name} (simulated)")
    axes.set_ylabel(f"tokens per occupied rank-second over {base.policy.name}")


def _point(result: Result, base: Result) -> Point:
    return result.throughput / base.throughput, result.tokens_per_occupied / base.tokens_per_occupied


def _around(values: Sequence[float]) -> tuple[float, float]:
    """Limits of an axis that show all values, and 1."""
    low, high = min(1.0, *values), max(1.0, *values)
    margin = MARGIN * max(high - low, 0.1)
    return low - margin, high + margin
