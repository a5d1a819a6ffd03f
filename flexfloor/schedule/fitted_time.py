"""One kind of time as a sum of parts that are fitted to measurements, with a model to start from.

With fewer than `ENOUGH` measurements the start's answer is taken, times the factor that the measurements
give. With more, the parts are fitted; at first numbers (of ranks, say) that were not measured the start
stands in with a few made-up measurements of little weight: they decide what the measured ones leave open.

Invariants:
- An answer changes in `refit` alone, and is finite and at least 0.
- It does not fall when a cause grows, where the start's does not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from flexfloor.schedule.non_negative import fit
from flexfloor.schedule.time_samples import TimeSamples

ENOUGH = 12
"""Measurements from which on parts are fitted."""
ENOUGH_OF_A_SIZE = 4
"""Measurements of a first number that give it parts of its own."""
MOST_SIZES = 16
"""First numbers that have parts of their own, those with most measurements."""
START_WEIGHT = 0.005
"""Weight of all that is made up, relative to all measurements."""
OWN_PULL = 10000
"""Parts of one size are kept small: what can be shared is shared."""

Parts = Callable[[np.ndarray], np.ndarray]
"""Loads [N, C] to non-negative parts [N, F], the first of which is a constant."""
Start = Callable[[np.ndarray], np.ndarray]
"""Loads [N, C] to seconds [N]."""


class FittedTime:
    """Seconds of loads of C numbers.

    Args:
        num_columns: C.
        parts: what a load's time is a sum of.
        start: the model to start from.
        sizes: first numbers that may be asked for, for what is made up.
        slope_column: a part of which, as of the constant, each measured size has one of its own.
    """

    def __init__(
        self,
        num_columns: int,
        parts: Parts,
        start: Start,
        sizes: Sequence[float] = (),
        slope_column: int | None = None,
    ) -> None:
        self.samples = TimeSamples(num_columns)
        self._parts, self._start = parts, start
        self._sizes, self._slope_column = tuple(sizes), slope_column
        self._own: tuple[float, ...] = ()
        self._scale = 1.0
        self._coefficients: np.ndarray | None = None

    def refit(self) -> None:
        """Take in what was measured since the last time."""
        loads, seconds = self.samples.arrays()
        if not len(loads):
            return
        self._scale = float(np.median(seconds / np.maximum(self._start(loads), 1e-12)))
        self._own = self._measured_sizes(loads[:, 0])
        self._coefficients = self._fitted(loads, seconds) if len(loads) >= ENOUGH else None

    def seconds(self, loads: np.ndarray) -> np.ndarray:
        """Seconds [N] of loads [N, C]."""
        if self._coefficients is None:
            return self._scale * self._start(loads)
        return self._features(loads) @ self._coefficients

    def median_relative_error(self) -> float:
        """Half of the measurements are nearer than this to the answer, relative to it; NaN without any."""
        return self.samples.median_relative_error(self.seconds)

    def _fitted(self, loads: np.ndarray, seconds: np.ndarray) -> np.ndarray:
        made_up = self._made_up(loads)
        weights = np.ones(len(loads) + len(made_up))
        weights[len(loads) :] = START_WEIGHT * len(loads) / max(len(made_up), 1)
        targets = np.concatenate([seconds, self._scale * self._start(made_up)])
        features = self._features(np.concatenate([loads, made_up]))
        pull = np.ones(features.shape[1])
        pull[self._parts(loads[:1]).shape[1] :] = OWN_PULL
        return fit(features, np.maximum(targets, 1e-9), weights, pull)

    def _measured_sizes(self, sizes: np.ndarray) -> tuple[float, ...]:
        if self._slope_column is None:
            return ()
        found, counts = np.unique(sizes, return_counts=True)
        order = np.argsort(-counts, kind="stable")[:MOST_SIZES]
        return tuple(sorted(float(found[i]) for i in order if counts[i] >= ENOUGH_OF_A_SIZE))

    def _made_up(self, loads: np.ndarray) -> np.ndarray:
        """Loads like those measured, at the sizes that were not."""
        missing = [size for size in self._sizes if size not in self._own]
        like = np.quantile(loads, [0.1, 0.5, 0.9], axis=0)
        made_up = np.repeat(like[None], len(missing), axis=0).reshape(-1, loads.shape[1])
        made_up[:, 0] = np.repeat(missing, len(like))
        return made_up

    def _features(self, loads: np.ndarray) -> np.ndarray:
        parts = self._parts(loads)
        if not self._own:
            return parts
        at = loads[:, :1] == np.asarray(self._own)[None, :]
        return np.concatenate([parts, at, at * parts[:, self._slope_column, None]], axis=1)
