"""Predicted beside real lengths: how often the 80 % interval held, and some responses to draw.

Invariants:
- all predicted responses are counted;
- those to draw are evenly spread over all of them, whatever their number, and are at most so many.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flexfloor.report.thin import MAX_POINTS
from flexfloor.track.lengths import StepLengths


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A response with the quantiles that were predicted for its length, in tokens."""

    step: int
    uid: str
    response_index: int
    num_tokens: int
    truncated: bool
    p10: float
    p50: float
    p90: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """What the page shows of the predictions."""

    points: list[Point]
    num_responses: int
    """All that were predicted, drawn or not."""
    num_covered: int
    """Of them, those whose length lies between p10 and p90, both included."""
    num_truncated: int
    num_covered_truncated: int
    """Of the truncated ones."""


class Comparison:
    """Takes the steps of a run one by one.

    Args:
        max_points: the most responses that are drawn.
    """

    def __init__(self, max_points: int = MAX_POINTS) -> None:
        self._max_points = max_points
        self._points: list[Point] = []
        self._every = 1
        self._responses = self._covered = self._truncated = self._covered_truncated = 0

    def add(self, step: int, lengths: StepLengths) -> None:
        """Count the responses of a step; one without predictions changes nothing."""
        low, middle, high = lengths.predicted_p10, lengths.predicted_p50, lengths.predicted_p90
        if low is None or middle is None or high is None:
            return
        tokens, truncated = np.array(lengths.num_tokens), np.array(lengths.truncated, dtype=bool)
        covered = (np.array(low) <= tokens) & (tokens <= np.array(high))
        for i in range(-self._responses % self._every, len(tokens), self._every):
            point = Point(
                step=step,
                uid=lengths.uid[i],
                response_index=lengths.response_index[i],
                num_tokens=lengths.num_tokens[i],
                truncated=lengths.truncated[i],
                p10=low[i],
                p50=middle[i],
                p90=high[i],
            )
            self._points.append(point)
        self._responses += len(tokens)
        self._covered += int(covered.sum())
        self._truncated += int(truncated.sum())
        self._covered_truncated += int((covered & truncated).sum())
        self._thin()

    def predicted(self) -> Predicted | None:
        """What was found; None when nothing was predicted."""
        if not self._responses:
            return None
        return Predicted(
            points=self._points,
            num_responses=self._responses,
            num_covered=self._covered,
            num_truncated=self._truncated,
            num_covered_truncated=self._covered_truncated,
        )

    def _thin(self) -> None:
        """Keep every second point as often as it takes: those that stay are every 2nd, 4th, ... response."""
        while len(self._points) > self._max_points:
            self._points = self._points[::2]
            self._every *= 2
