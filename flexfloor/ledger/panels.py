"""Small panels that show how reward and response length went over the steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from flexfloor.ledger.palette import INK, P50_COLOUR, P90_COLOUR, VALIDATION_COLOUR

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """What the panels show; an empty series is left out. Each maps a step to its value."""

    reward: Mapping[int, float] = field(default_factory=dict)
    """Mean reward of the step's responses."""
    validation: Mapping[int, float] = field(default_factory=dict)
    """Validation accuracy after the step."""
    length_p50: Mapping[int, float] = field(default_factory=dict)
    """Median response length of the step, in tokens."""
    length_p90: Mapping[int, float] = field(default_factory=dict)
    """90th percentile of the response lengths of the step, in tokens."""

    def __bool__(self) -> bool:
        return bool(self.reward or self.validation or self.length_p50 or self.length_p90)


def draw_reward(axes: Axes, curves: Curves) -> None:
    """Mean reward as a line, validation accuracy as points that are joined."""
    _curve(axes, curves.reward, "mean reward", color=INK)
    _curve(
        axes, curves.validation, "validation accuracy", color=VALIDATION_COLOUR, marker="D", linestyle="--"
    )
    _finish(axes, "reward")


def draw_lengths(axes: Axes, curves: Curves) -> None:
    """Median and 90th percentile of the response length."""
    _curve(axes, curves.length_p90, "p90", color=P90_COLOUR, marker="s")
    _curve(axes, curves.length_p50, "p50", color=P50_COLOUR)
    _finish(axes, "response length, tokens")
    axes.set_ylim(bottom=0)


def _curve(axes: Axes, series: Mapping[int, float], name: str, **look: Any) -> None:
    if series:
        steps = sorted(series)
        look = {"marker": "o", "markersize": 2.5, "linewidth": 1.4, **look}
        axes.plot(steps, [series[step] for step in steps], label=name, **look)


def _finish(axes: Axes, title: str) -> None:
    """Axis, grid and a legend above the data, where it can hide nothing."""
    from matplotlib.ticker import MaxNLocator

    axes.set_title(title, loc="left", fontsize=9)
    axes.set_xlabel("step")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.grid(axis="y", color="#E6E6E6", linewidth=0.7)
    axes.set_axisbelow(True)
    if axes.lines:
        first, last = axes.dataLim.intervalx
        axes.set_xlim(first - 0.5, last + 0.5)
        axes.legend(
            loc="lower right", bbox_to_anchor=(1.0, 0.98), ncols=2, frameon=False, fontsize=8, borderpad=0
        )
