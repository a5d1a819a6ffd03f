"""The picture of what is gained and what it costs: throughput against tokens per occupied second.

Every schedule is a point; up and to the right is better. What is simulated says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from flexfloor.ledger.palette import COLOUR, FAINT_INK, INK
from flexfloor.ledger.timeline import LOOK
from flexfloor.ledger.types import State
from flexfloor.simulate.comparison import Result

MARGIN = 0.18
"""Of the range of the points, around them, for their labels."""


def draw_frontier(results: Sequence[Result], path: Path, *, title: str) -> Path:
    """Write the picture as PNG and return `path`.

    Args:
        results: the first is what the others are compared with.
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    base = results[0]
    points = [
        (each.throughput / base.throughput, each.tokens_per_occupied / base.tokens_per_occupied)
        for each in results
    ]
    with matplotlib.rc_context(LOOK):
        figure = Figure(figsize=(6.4, 4.8), dpi=150)
        FigureCanvasAgg(figure)
        axes = figure.add_axes((0.11, 0.12, 0.85, 0.76))
        axes.axvline(1.0, color=FAINT_INK, linewidth=0.6, linestyle=(0, (1, 2)))
        axes.axhline(1.0, color=FAINT_INK, linewidth=0.6, linestyle=(0, (1, 2)))
        for (x, y), each in zip(points, results, strict=True):
            is_fixed = each.policy.shrink == "never"
            colour = INK if is_fixed else COLOUR[State.GENERATING]
            axes.plot(x, y, marker="s" if is_fixed else "o", color=colour, linestyle="")
            axes.annotate(each.policy.name, (x, y), xytext=(6, 5), textcoords="offset points", color=colour)
        axes.set_xlim(_around([x for x, _ in points]))
        axes.set_ylim(_around([y for _, y in points]))
        axes.set_xlabel(f"tokens per second over {base.policy.name} (simulated)")
        axes.set_ylabel(f"tokens per occupied rank-second over {base.policy.name}")
        figure.text(0.11, 0.93, title, fontsize=10, fontweight="bold")
        figure.savefig(path)
    return path


def _around(values: Sequence[float]) -> tuple[float, float]:
    """Limits of an axis that show all values, and 1."""
    low, high = min(1.0, *values), max(1.0, *values)
    margin = MARGIN * max(high - low, 0.1)
    return low - margin, high + margin
