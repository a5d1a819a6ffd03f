"""Response lengths as the page shows them: a histogram a step, and predicted beside real ones.

Steps are taken one by one, so that a long run's responses never stand in memory together.

Invariants:
- every response of a kept step is in exactly one bin; `every_step` counts those of all steps;
- coverage is counted over all predicted responses, also those that are not drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from flexfloor.report.predicted import Comparison, Predicted
from flexfloor.report.thin import MAX_BINS, MAX_STEPS, thinned
from flexfloor.track.lengths import StepLengths


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """Lengths of the responses of one step, or of all of them."""

    step: int | None
    """None for all steps."""
    counts: list[int]
    """Responses by bin."""
    truncated: int
    p50: float
    p90: float
    longest: int
    """Tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """What the panel of lengths shows."""

    edges: list[int]
    """Bin i holds the lengths from edges[i] to edges[i + 1] - 1."""
    every_step: Histogram
    steps: list[Histogram]
    num_steps: int
    """That have lengths, shown or not."""
    predicted: Predicted | None


def gather_lengths(steps: Iterable[tuple[int, StepLengths]], max_steps: int = MAX_STEPS) -> Lengths | None:
    """What to show of the lengths, step by step; None when there is no response.

    Args:
        max_steps: steps that have a histogram.
    """
    tokens: dict[int, np.ndarray] = {}
    truncated: dict[int, int] = {}
    comparison = Comparison()
    for step, lengths in steps:
        if lengths.num_responses:
            tokens[step] = np.array(lengths.num_tokens)
            truncated[step] = sum(lengths.truncated)
            comparison.add(step, lengths)
    if not tokens:
        return None
    edges = bin_edges(
        min(each.min() for each in tokens.values()), max(each.max() for each in tokens.values())
    )
    every = np.concatenate(list(tokens.values()))
    return Lengths(
        edges=edges,
        every_step=_histogram(None, every, edges, sum(truncated.values())),
        steps=[
            _histogram(step, tokens[step], edges, truncated[step])
            for step in thinned(list(tokens), max_steps)
        ],
        num_steps=len(tokens),
        predicted=comparison.predicted(),
    )


def bin_edges(shortest: int, longest: int, max_bins: int = MAX_BINS) -> list[int]:
    """Whole-number edges that grow by a factor, or by 1 where that is less; the last is past `longest`."""
    growth = (longest + 1) / shortest
    edges = shortest * growth ** (np.arange(max_bins + 1) / max_bins)
    return sorted({int(edge) for edge in np.rint(edges)})


def _histogram(step: int | None, num_tokens: np.ndarray, edges: Sequence[int], truncated: int) -> Histogram:
    counts, _ = np.histogram(num_tokens, bins=np.array(edges) - 0.5)
    return Histogram(
        step=step,
        counts=counts.tolist(),
        truncated=truncated,
        p50=float(np.percentile(num_tokens, 50)),
        p90=float(np.percentile(num_tokens, 90)),
        longest=int(num_tokens.max()),
    )
