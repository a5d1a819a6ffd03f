"""The distribution of a response's length in tokens: log-normal, rounded up and cut at a limit.

A length is the next whole number above exp(x) with x normal, at most the limit. A share `runaway` of
responses (a model that repeats itself, say) never ends by itself and meets the limit whatever it is.

Invariants:
- `outlives` falls with the tokens and is 1 at 0 tokens.
- `shortest_within` lies between 1 and the limit, and so does `expected`.
"""

from __future__ import annotations

import numpy as np

from flexfloor.schedule.normal import survival, survival_point


def log_of_length(lengths: np.ndarray) -> np.ndarray:
    """The x that stands for a length: the middle of those that are rounded up to it."""
    return np.log(np.maximum(lengths, 1) - 0.5)


def outlives(tokens: np.ndarray, mean: np.ndarray, sd: np.ndarray, runaway: float) -> np.ndarray:
    """P(length > tokens) where no limit is met; `mean` and `sd` are those of x."""
    z = (np.log(np.maximum(tokens, 1e-300)) - mean) / sd
    return runaway + (1.0 - runaway) * survival(z)


def shortest_within(
    outlived: np.ndarray, mean: np.ndarray, sd: np.ndarray, runaway: float, limit: np.ndarray | int
) -> np.ndarray:
    """The shortest length (int) that only a part `outlived` of responses exceeds, or the limit."""
    whole = (outlived - runaway) / (1.0 - runaway)
    log_length = np.minimum(mean + sd * survival_point(whole), np.log(limit))
    length = np.where(whole > 0, np.ceil(np.exp(log_length)), limit)
    return np.clip(length, 1, limit).astype(np.int64)


def expected(mean: np.ndarray, sd: np.ndarray, runaway: float, limit: np.ndarray | int) -> np.ndarray:
    """Expected length: a log-normal cut at the limit, half a token for rounding up, and runaways."""
    z = (np.log(limit) - mean) / sd
    beyond, below = survival(z), survival(sd - z)
    ends = np.exp(np.minimum(mean + sd**2 / 2, 700.0)) * below + 0.5 * (1.0 - beyond)
    return np.clip((1.0 - runaway) * (ends + limit * beyond) + runaway * limit, 1.0, limit)
