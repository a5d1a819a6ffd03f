"""Measured times, few of each kind of load, so that what is rare is not forgotten over what is frequent.

Loads are of one kind when their first numbers are equal and the others within a factor of about two. Of each
kind the newest `OF_A_KIND` are kept, of kinds the newest `KINDS`.

Invariants:
- There are never more than `KINDS * OF_A_KIND` samples.
- Adding `rows()` to an empty store gives the same store.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

KINDS = 256
OF_A_KIND = 8

Kind = tuple[float, ...]


class TimeSamples:
    """Loads of `num_columns` numbers each, with the seconds that they took."""

    def __init__(self, num_columns: int) -> None:
        self._num_columns = num_columns
        self._kinds: dict[Kind, deque[tuple[float, ...]]] = {}

    def __len__(self) -> int:
        return sum(len(kept) for kept in self._kinds.values())

    def add(self, load: Sequence[float], seconds: float) -> None:
        """Keep a sample; one without a positive finite time is left out."""
        row = (*(float(number) for number in load), float(seconds))
        if not all(math.isfinite(number) and number >= 0 for number in row) or seconds <= 0:
            return
        kind = (row[0], *(math.floor(math.log2(1.0 + number)) for number in row[1:-1]))
        kept = self._kinds.pop(kind, None) or deque(maxlen=OF_A_KIND)
        kept.append(row)
        self._kinds[kind] = kept
        if len(self._kinds) > KINDS:
            del self._kinds[next(iter(self._kinds))]

    def median_relative_error(self, answer: Callable[[np.ndarray], np.ndarray]) -> float:
        """Of `answer`, loads [N, num_columns] to seconds [N]; NaN without samples."""
        loads, seconds = self.arrays()
        if not len(loads):
            return float("nan")
        answered = np.maximum(answer(loads), 1e-12)
        return float(np.median(np.abs(seconds - answered) / answered))

    def rows(self) -> list[list[float]]:
        """Every sample, as load and seconds in one list: plain data."""
        return [list(row) for kept in self._kinds.values() for row in kept]

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """Loads [N, num_columns] and seconds [N]."""
        rows = np.asarray(self.rows(), dtype=float).reshape(-1, self._num_columns + 1)
        return rows[:, :-1], rows[:, -1]
