"""The cost of passes, shrinks and training as this run has measured it.

A pass is a sum of what every pass costs, of what falls with the ranks (each hosts fewer experts), of what
grows with them (collectives), of the experts that few rows touch one by one and many rows share, and of rows,
prompts and context. A number of ranks that was measured has a constant and a slope of its own on top; one
that was not is answered from the others.

Invariants:
- The same measurements give the same bits; ranks that decide together must have been told the same ones.
- A pass with more rows, prompt tokens or context never takes less.
- Memory is bounded, and `from_state` of `state` answers as `refit` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from flexfloor.schedule.alone_time import AloneTime
from flexfloor.schedule.cost import CostModel, Number, PassLoad
from flexfloor.schedule.fitted_time import FittedTime

ROWS = 9
"""Which of the parts of a pass counts the decoding rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassSample:
    """A pass of numbers, and its seconds on the rank that took longest."""

    load: PassLoad
    seconds: float


class FittedCost:
    """A `CostModel` of measurements.

    Args:
        start: the model that answers, scaled, until there are enough.
        rungs: numbers of ranks that may be asked for.
    """

    def __init__(self, start: CostModel, rungs: Sequence[int]) -> None:
        self._passes = FittedTime(
            4, _pass_parts, lambda loads: _start_passes(start, loads), rungs, slope_column=ROWS
        )
        self._alone = AloneTime(self._passes.seconds)
        self._shrinks = FittedTime(3, _shrink_parts, lambda loads: _start_shrinks(start, loads))
        self._training = FittedTime(1, _training_parts, lambda loads: _start_training(start, loads))
        self._kinds: dict[str, FittedTime | AloneTime] = {
            "passes": self._passes,
            "alone": self._alone,
            "shrinks": self._shrinks,
            "training": self._training,
        }
        self.pass_error = 0.0
        """Relative, half of the measured passes of a group are nearer to the answer; 0 before any."""

    def add_passes(self, samples: Sequence[PassSample]) -> None:
        """Take note of measured passes."""
        _add(self._passes, samples)

    def add_alone(self, samples: Sequence[PassSample]) -> None:
        """Take note of a rollout's passes of the `load.ranks` ranks that parted; none = no rank did."""
        _add(self._alone, samples)
        self._alone.rollout(float(samples[0].load.ranks) if samples else None)

    def add_shrink(self, before: int, after: int, moved_tokens: float, seconds: float) -> None:
        """Take note of a measured shrink."""
        self._shrinks.samples.add([before, after, moved_tokens], seconds)

    def add_training(self, tokens: float, seconds: float) -> None:
        """Take note of forward and backward over so many tokens on one rank."""
        self._training.samples.add([tokens], seconds)

    def refit(self) -> None:
        """Answer by what was noted from now on."""
        for times in self._kinds.values():
            times.refit()
        if len(self._passes.samples):
            self.pass_error = self._passes.median_relative_error()

    def pass_seconds(self, load: PassLoad) -> Number:
        """Seconds of a pass, in the shape of the load's fields."""
        return _answer(self._passes, load)

    def alone_seconds(self, load: PassLoad) -> Number:
        """Seconds of a pass of each of `load.ranks` ranks that have parted."""
        return _answer(self._alone, load)

    def shrink_seconds(self, before: int, after: int, moved_tokens: Number) -> Number:
        """Seconds from `before` to `after` active ranks, with experts and the caches of `moved_tokens`."""
        moved = np.asarray(moved_tokens, dtype=float)
        sizes = np.full((moved.size, 2), (before, after), dtype=float)
        found = self._shrinks.seconds(np.column_stack([sizes, moved.ravel()])).reshape(moved.shape)
        return found if found.shape else float(found)

    def train_seconds(self, tokens: float) -> float:
        """Seconds of forward and backward over so many tokens on one rank."""
        return float(self._training.seconds(np.array([[tokens]], dtype=float))[0])

    def median_relative_errors(self) -> dict[str, float]:
        """By kind of measurement: half of them are nearer to the answer."""
        return {kind: times.median_relative_error() for kind, times in self._kinds.items()}

    def num_samples(self) -> dict[str, int]:
        """Measurements kept, by kind: `passes`, `alone`, `shrinks` and `training`."""
        return {kind: len(times.samples) for kind, times in self._kinds.items()}

    def state(self) -> dict[str, Any]:
        """Plain JSON data, for `from_state`."""
        rows: dict[str, Any] = {kind: times.samples.rows() for kind, times in self._kinds.items()}
        return rows | {"unseen": sorted(self._alone.unseen.items())}

    @classmethod
    def from_state(cls, state: dict[str, Any], start: CostModel, rungs: Sequence[int]) -> FittedCost:
        """The fit of the measurements whose `state` this was."""
        cost = cls(start, rungs)
        for kind, times in cost._kinds.items():
            # A state from before ranks parted has none of theirs.
            for *load, seconds in state.get(kind, []):
                times.samples.add(load, seconds)
        cost._alone.unseen = {float(ranks): rollouts for ranks, rollouts in state.get("unseen", [])}
        cost.refit()
        return cost


def _add(times: FittedTime | AloneTime, samples: Sequence[PassSample]) -> None:
    for sample in samples:
        load = sample.load
        columns = (load.ranks, load.rows, load.joining, load.context)
        times.samples.add([float(column) for column in columns], sample.seconds)


def _answer(times: FittedTime | AloneTime, load: PassLoad) -> Number:
    columns = np.broadcast_arrays(load.ranks, load.rows, load.joining, load.context)
    loads = np.stack([np.asarray(column, dtype=float).ravel() for column in columns], axis=1)
    seconds = times.seconds(loads).reshape(columns[0].shape)
    return seconds if seconds.shape else float(seconds)


def _pass_parts(loads: np.ndarray) -> np.ndarray:
    """Of loads (ranks, rows, joining, context) [N, 4], [N, 10]."""
    ranks, rows, joining, context = loads.T
    tokens = rows + joining
    touched = np.log1p(tokens)
    parts = [
        np.ones_like(ranks),
        1.0 / ranks,
        np.log2(ranks),
        touched,
        touched / ranks,
        tokens,
        tokens * (1.0 - 1.0 / ranks),
        joining,
        context,
        rows,
    ]
    return np.stack(parts, axis=1)


def _shrink_parts(loads: np.ndarray) -> np.ndarray:
    """Of (ranks before, after, tokens moved) [N, 3]: constant, experts and cache for a stayer, [N, 3]."""
    before, after, moved_tokens = loads.T
    return np.stack([np.ones_like(before), 1.0 / after - 1.0 / before, moved_tokens / after], axis=1)


def _training_parts(loads: np.ndarray) -> np.ndarray:
    return np.stack([np.ones(len(loads)), loads[:, 0]], axis=1)


def _start_passes(start: CostModel, loads: np.ndarray) -> np.ndarray:
    ranks, rows, joining, context = loads.T
    seconds = start.pass_seconds(PassLoad(ranks=ranks, rows=rows, joining=joining, context=context))
    return np.asarray(seconds, dtype=float)


def _start_shrinks(start: CostModel, loads: np.ndarray) -> np.ndarray:
    rows = loads.tolist()
    return np.array([start.shrink_seconds(int(before), int(after), moved) for before, after, moved in rows])


def _start_training(start: CostModel, loads: np.ndarray) -> np.ndarray:
    return np.array([start.train_seconds(tokens) for tokens in loads[:, 0].tolist()])
