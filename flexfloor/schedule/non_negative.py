"""Sums of non-negative parts that explain measured times, whatever a few of the measurements are worth.

Times on a shared machine have outliers, and all to one side. So the sum of absolute errors, relative to what
is predicted, is made small and not that of squares: the fit is one of medians.

Invariants:
- No coefficient is negative, so that no part of a time shrinks when its cause grows.
- The same measurements in the same order give the same bits.
"""

from __future__ import annotations

import numpy as np

ROUNDS = 25
"""Of reweighting."""
EXACT = 0.003
"""Relative errors below this count as that small."""
LEAST_SHARE = 0.02
"""A prediction counts as at least this part of what was measured."""
RIDGE = 1e-6
"""Pull of parts towards 0, relative to the measurements; shares out what is alike."""


def fit(features: np.ndarray, seconds: np.ndarray, weights: np.ndarray, pull: np.ndarray) -> np.ndarray:
    """Coefficients [F] >= 0 of the parts whose sum is nearest to the measurements.

    Args:
        features: parts of each measurement, >= 0, [N, F].
        seconds: measured, above 0, [N].
        weights: of each measurement, [N].
        pull: of each part towards 0, relative to `RIDGE`, [F].
    """
    relative = features / seconds[:, None]
    scale = np.sqrt(np.average(np.square(relative), axis=0, weights=weights))
    scale = np.where(scale > 0, scale, 1.0)
    parts, current = relative / scale, weights
    for _ in range(ROUNDS):
        weighted = parts * current[:, None]
        ridge = RIDGE * current.sum() * pull
        found = solve(weighted.T @ parts + np.diag(ridge), weighted.sum(axis=0))
        predicted = parts @ found
        error = np.maximum(np.abs(predicted - 1.0), EXACT)
        current = weights / (error * np.maximum(predicted, LEAST_SHARE))  # |predicted - measured| / predicted
    return found / scale


def solve(gram: np.ndarray, target: np.ndarray) -> np.ndarray:
    """The x >= 0 with the least x·gram·x / 2 - target·x (gram definite), by Lawson and Hanson's method."""
    found = np.zeros(len(target))
    free = np.zeros(len(target), dtype=bool)
    enough = 1e-10 * np.abs(target).max(initial=0.0)
    for _ in range(3 * len(target)):
        slope = np.where(free, -np.inf, target - gram @ found)
        if slope.max(initial=-np.inf) <= enough:
            break
        free[int(np.argmax(slope))] = True
        found = _descend(gram, target, found, free)
    return found


def _descend(gram: np.ndarray, target: np.ndarray, found: np.ndarray, free: np.ndarray) -> np.ndarray:
    """The best x over the free coefficients, those that would turn negative set fast at 0 (in `free`)."""
    while True:
        best = np.zeros(len(target))
        best[free] = np.linalg.solve(gram[np.ix_(free, free)], target[free])
        blocked = free & (best <= 0)
        if not blocked.any():
            return best
        step = (found[blocked] / np.maximum(found[blocked] - best[blocked], 1e-300)).min()
        found = found + step * (best - found)
        free &= found > 1e-14 * max(found.max(), 1e-300)
        found = np.where(free, found, 0.0)
