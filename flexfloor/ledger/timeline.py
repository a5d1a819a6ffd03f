"""The picture of a run: who held each rank, when, and for what, above how reward and length went.

A few steps are shown in full, the whole run as a thin overview under it. Everything is drawn with
matplotlib's file backend and local settings: no window, no global state is touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flexfloor.ledger.clock import step_starts
from flexfloor.ledger.gantt import draw_rows
from flexfloor.ledger.overview import draw_overview
from flexfloor.ledger.palette import (
    COLOUR,
    EARLY_COLOUR,
    EARLY_MEANING,
    IDLE_LOOK,
    IDLE_MEANING,
    INK,
    RELEASED_LOOK,
    RELEASED_MEANING,
)
from flexfloor.ledger.panels import Curves, draw_lengths, draw_reward
from flexfloor.ledger.strip import draw_strip
from flexfloor.ledger.types import State, StepRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_OVERVIEW_RANKS = 64
"""With more ranks than this a row of the overview would be thinner than two pixels."""

LOOK: dict[Any, Any] = {
    "font.size": 9,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "text.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "hatch.linewidth": 0.6,
    "figure.facecolor": "white",
}


def draw_timeline(
    steps: Sequence[Sequence[StepRecord]], path: Path, *, curves: Curves | None = None, num_steps: int = 3
) -> Path:
    """Write the picture of the run as PNG.

    Args:
        steps: settled records of all steps so far, in order; at least one.
        path: the file to write.
        curves: series for the panels below the time line.
        num_steps: how many of the last steps are shown in full.

    Returns:
        `path`.
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    assert steps, "no step to draw"
    curves = curves or Curves()
    with matplotlib.rc_context(LOOK):
        layout = _Layout.of(steps, curves, num_steps)
        figure = Figure(figsize=(11, layout.inches), dpi=150)
        FigureCanvasAgg(figure)
        _draw(figure, layout, steps, curves, num_steps)
        figure.savefig(path)
    return path


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """Heights of the parts from top to bottom, in inches; a part of height 0 is left out."""

    rows: float
    overview: float
    panels: float
    head: float = 0.75
    strip: float = 0.6
    axis: float = 0.56
    """Below each part, for its numbers and label."""
    title: float = 0.28
    """Above the panels."""

    @classmethod
    def of(cls, steps: Sequence[Sequence[StepRecord]], curves: Curves, num_steps: int) -> _Layout:
        num_ranks = max(len(records) for records in steps)
        fits = len(steps) > num_steps and num_ranks <= MAX_OVERVIEW_RANKS
        return cls(
            rows=min(6.0, max(0.7, 0.34 * num_ranks)),
            overview=min(1.6, max(0.3, 0.09 * num_ranks)) if fits else 0.0,
            panels=1.35 if curves else 0.0,
        )

    @property
    def inches(self) -> float:
        """Height of the picture."""
        overview = self.overview + self.axis if self.overview else 0.0
        panels = self.title + self.panels + self.axis if self.panels else 0.0
        return self.head + self.strip + self.rows + self.axis + overview + panels

    def place(
        self, figure: Figure, bottom: float, height: float, left: float = 0.075, width: float = 0.9
    ) -> Axes:
        """Axes whose bottom and height are in inches, left and width in shares of the picture."""
        return figure.add_axes((left, bottom / self.inches, width, height / self.inches))


def _draw(
    figure: Figure, layout: _Layout, steps: Sequence[Sequence[StepRecord]], curves: Curves, num_steps: int
) -> None:
    """Head, strip and rows, overview, panels: each part is placed under the one before."""
    starts = step_starts(steps)
    end = starts[-1] + steps[-1][0].seconds
    shown, shown_starts = steps[-num_steps:], starts[-num_steps:]
    _draw_head(figure, layout)
    bottom = layout.inches - layout.head - layout.strip
    strip = layout.place(figure, bottom, layout.strip)
    bottom -= layout.rows
    rows = layout.place(figure, bottom, layout.rows)
    for axes in (strip, rows):
        axes.set_xlim(shown_starts[0], end)
    draw_rows(rows, shown, shown_starts)
    draw_strip(strip, rows, shown, shown_starts)
    rows.set_xlabel("seconds since the start of the run")
    if layout.overview:
        bottom -= layout.axis + layout.overview
        overview = layout.place(figure, bottom, layout.overview)
        draw_overview(overview, steps)
        _frame(overview, (shown_starts[0], end))
    if layout.panels:
        bottom -= layout.axis + layout.title + layout.panels
        draw_reward(layout.place(figure, bottom, layout.panels, width=0.41), curves)
        draw_lengths(layout.place(figure, bottom, layout.panels, left=0.565, width=0.41), curves)


def _draw_head(figure: Figure, layout: _Layout) -> None:
    """Title and legend above everything."""
    from matplotlib.patches import Patch

    title_y, legend_y = (1 - inches / layout.inches for inches in (0.24, 0.55))
    figure.text(0.075, title_y, "Who held each rank", fontsize=12, fontweight="bold", va="center")
    handles = [Patch(facecolor=COLOUR[state], label=state.value) for state in State]
    handles.insert(1, Patch(label=IDLE_MEANING, **IDLE_LOOK))
    handles.insert(3, Patch(label=RELEASED_MEANING, **RELEASED_LOOK))
    handles.insert(4, Patch(facecolor=EARLY_COLOUR, label=EARLY_MEANING))
    figure.legend(
        handles=handles,
        loc="center left",
        bbox_to_anchor=(0.067, legend_y),
        ncols=len(handles),
        frameon=False,
        handlelength=1.6,
        columnspacing=1.6,
    )


def _frame(overview: Axes, shown: tuple[float, float]) -> None:
    """Name the overview and frame the part of it that stands above in full."""
    overview.axvspan(*shown, facecolor="none", edgecolor=INK, linewidth=1.2, clip_on=False)
    overview.set_xlim(0, shown[1])
    overview.set_yticks([])
    overview.spines["left"].set_visible(False)
    overview.set_ylabel("whole\nrun", rotation=0, ha="right", va="center")
    overview.set_xlabel("seconds since the start of the run (framed: the steps above)")
