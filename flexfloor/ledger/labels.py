"""Where labels in a row go, so that none touches another.

Each label names a stretch and may stand anywhere over it, at best over its middle. Keeping their order
and a gap between them while moving them as little as possible is an isotonic regression, solved by
pooling neighbours that violate the order; a label moves the more easily the longer its stretch.

Invariants:
- labels keep their order, do not overlap and stay inside the bounds;
- a label that has room stands over the middle of its stretch.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np


def spread_labels(
    stretches: Sequence[tuple[float, float]], widths: Sequence[float], bounds: tuple[float, float], gap: float
) -> list[float] | None:
    """Centres of the labels after moving them apart, all in the same unit (pixels).

    Args:
        stretches: begin and end of what each label names, ascending; none is of length 0.
        widths: width of each label.
        bounds: the labels stay between these two.
        gap: least distance between neighbours.

    Returns:
        Centres in the given order, or None when the labels do not fit between the bounds at all.
    """
    if not stretches:
        return []
    left, right = bounds
    steps = [(before + after) / 2 + gap for before, after in pairwise(widths)]
    offsets = np.array(list(accumulate(steps, initial=0.0)))
    low, high = left + widths[0] / 2, right - widths[-1] / 2 - offsets[-1]
    if low > high:
        return None
    wanted = np.array([(begin + end) / 2 for begin, end in stretches]) - offsets
    weights = np.array([1 / (end - begin) for begin, end in stretches])
    return list(np.clip(_nondecreasing_fit(wanted, weights), low, high) + offsets)


def _nondecreasing_fit(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The nondecreasing sequence nearest to `values` in weighted least squares (pool adjacent violators)."""
    pools: list[tuple[float, float, int]] = []  # mean, weight, count
    for mean, weight in zip(values, weights, strict=True):
        count = 1
        while pools and pools[-1][0] > mean:
            other, heavy, number = pools.pop()
            mean = (mean * weight + other * heavy) / (weight + heavy)
            weight, count = weight + heavy, count + number
        pools.append((mean, weight, count))
    return np.repeat([mean for mean, _, _ in pools], [count for _, _, count in pools])
