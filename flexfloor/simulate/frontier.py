"""The picture of what is gained and what it costs: throughput against tokens per occupied second.

Every schedule is a point; up and to the right is better. What is simulated says so.
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

MARGIN = 0.18
"""Of the range of the points, around them, for their labels."""


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

    base = results[0]
    points = [_point(each, base) for each in results]
    line = [_point(each, base) for each in trade_off]
    with matplotlib.rc_context(LOOK):
        figure = Figure(figsize=(6.4, 4.8), dpi=150)
        FigureCanvasAgg(figure)
        axes = figure.add_axes((0.11, 0.12, 0.85, 0.76))
        axes.axvline(1.0, color=FAINT_INK, linewidth=0.6, linestyle=(0, (1, 2)))
        axes.axhline(1.0, color=FAINT_INK, linewidth=0.6, linestyle=(0, (1, 2)))
        axes.plot([x for x, _ in line], [y for _, y in line], color=COLOUR[State.TRAINING], linewidth=1.0)
        for number, (point, each) in enumerate(zip(points, results, strict=True)):
            _draw_point(axes, point, each, below=number % 2 == 0)
        for point, each in zip(line, trade_off, strict=True):
            _draw_point(axes, point, each, is_on_line=True)
        axes.set_xlim(_around([x for x, _ in (*points, *line)]))
        axes.set_ylim(_around([y for _, y in (*points, *line)]))
        axes.set_xlabel(f"tokens per second over {base.policy.name} (simulated)")
        axes.set_ylabel(f"tokens per occupied rank-second over {base.policy.name}")
        figure.text(0.11, 0.95, "Simulated: throughput against occupied time", fontsize=11, fontweight="bold")
        figure.text(0.11, 0.905, title, fontsize=8)
        figure.savefig(path)
    return path


def _point(result: Result, base: Result) -> tuple[float, float]:
    return result.throughput / base.throughput, result.tokens_per_occupied / base.tokens_per_occupied


def _draw_point(
    axes: Axes, point: tuple[float, float], result: Result, *, below: bool = False, is_on_line: bool = False
) -> None:
    is_fixed = result.policy.shrink == "never"
    colour = INK if is_fixed else COLOUR[State.TRAINING if is_on_line else State.GENERATING]
    marker = "s" if is_fixed else "."
    axes.plot(*point, marker=marker if is_on_line or is_fixed else "o", color=colour, linestyle="")
    axes.annotate(
        result.policy.name,
        point,
        xytext=(6, -12 if below else 5),
        textcoords="offset points",
        fontsize=7 if is_on_line else 9,
        color=colour,
    )


def _around(values: Sequence[float]) -> tuple[float, float]:
    """Limits of an axis that show all values, and 1."""
    low, high = min(1.0, *values), max(1.0, *values)
    margin = MARGIN * max(high - low, 0.1)
    return low - margin, high + margin
