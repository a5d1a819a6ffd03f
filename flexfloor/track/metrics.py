"""Metrics on disk: `metrics.jsonl`, a line for each time that metrics are logged.

Invariants:
- a value that is not a finite number is refused with the metric's name, before anything is written;
- a resumed run's file holds no step twice (see `jsonl`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from pathlib import Path
from typing import Any

from flexfloor.errors import FlexFloorError
from flexfloor.track.jsonl import StepLog, read_steps


class MetricsFile:
    """Appends metrics to a file; rank 0 holds it.

    Args:
        path: the file, by custom `metrics.jsonl` in the run folder.
        first_step: first step that this run will log; what is there from it on is set aside.

    Raises:
        FlexFloorError: the file cannot be read or written.
    """

    def __init__(self, path: Path, first_step: int = 0) -> None:
        self.path = path
        self._log = StepLog(path, first_step)

    def append(self, metrics: Mapping[str, float], step: int) -> None:
        """Write what `finite_metrics` has passed."""
        self._log.write({"step": step, **metrics})

    def close(self) -> None:
        """Close the file."""
        self._log.close()


def finite_metrics(metrics: Mapping[str, Any], step: int) -> dict[str, float]:
    """The metrics as plain Python numbers; NumPy scalars and one-element tensors are unpacked.

    Raises:
        FlexFloorError: a value is NaN, infinite or no number; names the metric and the step.
    """
    assert "step" not in metrics, "'step' is the record's own field"
    return {name: _finite(name, value, step) for name, value in metrics.items()}


def _finite(name: str, value: Any, step: int) -> float:
    is_array = hasattr(value, "item")
    number = value.item() if is_array and math.prod(value.shape) == 1 else value
    if not isinstance(number, Real):
        raise FlexFloorError(f"metric {name} at step {step} is {value!r}, which is no number")
    if not math.isfinite(number):
        raise FlexFloorError(f"metric {name} at step {step} is {number}: metrics must be finite numbers")
    return int(number) if isinstance(number, int) else float(number)


def read_metrics(path: Path) -> dict[int, dict[str, float]]:
    """All metrics by step, in order of steps; what was logged for one step several times is merged."""
    steps: dict[int, dict[str, float]] = {}
    for record in read_steps(path):
        steps.setdefault(record.pop("step"), {}).update(record)
    return dict(sorted(steps.items()))


def series(steps: Mapping[int, Mapping[str, float]], name: str) -> dict[int, float]:
    """One metric by step, for the steps that have it."""
    return {step: metrics[name] for step, metrics in steps.items() if name in metrics}
