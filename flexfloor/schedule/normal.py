"""Tails of the normal distribution for arrays, by a table: NumPy has none and SciPy is not a dependency.

Invariants:
- `log_survival` is within 2e-5 of the logarithm of the true probability up to z = 37, and falls on beyond.
- `survival_point` is its inverse within 1e-3 for probabilities from 1e-300 to 1 - 1e-9.
"""

from __future__ import annotations

import math

import numpy as np

_LOW, _HIGH, _STEPS = -8.0, 37.0, 4500
_POINTS = np.linspace(_LOW, _HIGH, _STEPS + 1)
_LOG_SURVIVAL = np.array([math.log(0.5 * math.erfc(z / math.sqrt(2.0))) for z in _POINTS])
_RISE = np.append(np.diff(_LOG_SURVIVAL), 0.0)
_HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)


def log_survival(z: np.ndarray) -> np.ndarray:
    """log P(Z > z) of a standard normal Z, in the shape of `z`."""
    place = (np.clip(z, _LOW, _HIGH) - _LOW) * (_STEPS / (_HIGH - _LOW))
    index = place.astype(np.int32)  # evenly spaced points: much faster than the search of np.interp
    inside = _LOG_SURVIVAL[index] + (place - index) * _RISE[index]
    return inside - np.where(z > _HIGH, 0.5 * (np.square(z) - _HIGH**2), 0.0)


def survival(z: np.ndarray) -> np.ndarray:
    """P(Z > z) of a standard normal Z, in the shape of `z`."""
    return np.exp(log_survival(z))


def survival_point(probability: np.ndarray) -> np.ndarray:
    """The z with P(Z > z) = `probability`, between -8 and 37."""
    return np.interp(-np.log(np.clip(probability, 1e-300, 1.0)), -_LOG_SURVIVAL, _POINTS)


def hazard(z: np.ndarray) -> np.ndarray:
    """E[Z | Z > z] of a standard normal Z: its density over its survival."""
    z = np.asarray(z, dtype=float)
    inside = np.minimum(z, _HIGH)
    return np.where(z > _HIGH, z, np.exp(-0.5 * inside**2 - _HALF_LOG_TWO_PI - log_survival(inside)))
