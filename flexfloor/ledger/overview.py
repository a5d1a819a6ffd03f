"""The whole run in a thin strip: for each rank and each column of pixels, the state that held most of it.

Sampling into columns bounds the drawing's size whatever the number of steps, and unlike thousands of
rectangles thinner than a pixel it does not blend their colours.

Invariants:
- a column shows the state with the largest share of its time; time between steps stays blank.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from flexfloor.ledger.clock import step_starts
from flexfloor.ledger.palette import COLOUR, EARLY_COLOUR, IDLE_COLOUR
from flexfloor.ledger.types import Interval, State, StepRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLANK, IDLE, EARLY = 0, 5, 6
"""Codes of the sampled columns beside the states' own, which are 1 to 4 in the order of `State`."""


def sample_states(steps: Sequence[Sequence[StepRecord]], num_columns: int) -> np.ndarray:
    """Codes of what held each rank in each of `num_columns` equal parts of the run.

    Returns:
        int8 [ranks, columns].
    """
    starts = step_starts(steps)
    column_s = (starts[-1] + steps[-1][0].seconds) / num_columns
    num_ranks = max(len(records) for records in steps)
    held = np.zeros((EARLY + 1, num_ranks, num_columns))  # seconds by code
    for start, records in zip(starts, steps, strict=True):
        for record in records:
            for interval in record.intervals:
                begin, end = start + interval.start_s, start + interval.end_s
                idle = end - interval.idle_seconds
                _add(held[_code(interval), record.rank], begin, idle, column_s)
                _add(held[IDLE, record.rank], idle, end, column_s)
    held[BLANK] = column_s - held.sum(axis=0)
    return held.argmax(axis=0).astype(np.int8)


def _code(interval: Interval) -> int:
    return EARLY if interval.is_early else list(State).index(interval.state) + 1


def _add(held: np.ndarray, begin: float, end: float, column_s: float) -> None:
    """Add the stretch from `begin` to `end` to the seconds of the columns that it touches."""
    first, last = int(begin / column_s), min(int(end / column_s), len(held) - 1)
    if first >= last:
        held[last] += end - begin
        return
    held[first] += (first + 1) * column_s - begin
    held[first + 1 : last] += column_s
    held[last] += end - last * column_s


def draw_overview(axes: Axes, steps: Sequence[Sequence[StepRecord]], num_columns: int = 2000) -> None:
    """Fill `axes` with the sampled run; x in seconds of the run, one row a rank, rank 0 on top."""
    from matplotlib.colors import ListedColormap

    codes = sample_states(steps, num_columns)
    end = step_starts(steps)[-1] + steps[-1][0].seconds
    colours = ListedColormap(["white", *(COLOUR[state] for state in State), IDLE_COLOUR, EARLY_COLOUR])
    extent = (0.0, end, len(codes) - 0.5, -0.5)
    axes.imshow(
        codes, cmap=colours, vmin=BLANK, vmax=EARLY, extent=extent, aspect="auto", interpolation="nearest"
    )
