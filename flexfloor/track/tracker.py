"""One place to tell what a run does: JSONL always, W&B when asked for.

Rank 0 holds the tracker. Every value is checked once before it goes anywhere, so no log holds what
another refused.

Invariants:
- a metric that is not finite stops the run with its name, and is written nowhere;
- the run's id stays the same over a resume, with or without W&B.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from flexfloor.track.jsonl import StepLog
from flexfloor.track.metrics import MetricsFile, finite_metrics, read_metrics
from flexfloor.track.samples import SampleRow
from flexfloor.track.wandb import WandbRun, new_run_id

METRICS_FILE = "metrics.jsonl"
SAMPLES_FILE = "samples.jsonl"


class Tracker:
    """Logs of one run.

    Args:
        loggers: `trainer.logger`; "wandb" starts W&B, the JSONL files are written in any case.
        project: W&B project.
        experiment: W&B run name.
        folder: run folder; `metrics.jsonl`, `samples.jsonl` and `wandb/` lie in it.
        config: the composed configuration as plain data.
        run_id: id of the run that is resumed (from its checkpoint); None = a new run.
        first_step: first step that this process will log. What the files hold of it and later steps
            is set aside: 0 for a new run, k + 1 for one resumed from the checkpoint of step k.

    Raises:
        FlexFloorError: a log cannot be written, or W&B does not start.
    """

    def __init__(
        self,
        *,
        loggers: Sequence[str],
        project: str,
        experiment: str,
        folder: Path,
        config: Mapping[str, Any],
        run_id: str | None = None,
        first_step: int = 0,
    ) -> None:
        self.folder = folder
        self.run_id = run_id or new_run_id()
        self._metrics = MetricsFile(folder / METRICS_FILE, first_step)
        self._samples = StepLog(folder / SAMPLES_FILE, first_step)
        self._wandb: WandbRun | None = None
        if "wandb" in loggers:
            self._wandb = WandbRun(
                project=project, name=experiment, run_id=self.run_id, folder=folder, config=config
            )

    def log(self, metrics: Mapping[str, Any], step: int) -> None:
        """Log the metrics of a training step.

        Raises:
            FlexFloorError: a value is NaN, infinite or no number; names the metric and the step.
        """
        values = finite_metrics(metrics, step)
        self._metrics.append(values, step)
        if self._wandb:
            self._wandb.log(values, step)

    def log_image(self, name: str, path: Path, step: int) -> None:
        """Log a picture file to W&B; on disk it is already."""
        if self._wandb:
            self._wandb.log_image(name, path, step)

    def log_samples(self, rows: Sequence[SampleRow], step: int, name: str = "val/samples") -> None:
        """Log a table of samples.

        Raises:
            FlexFloorError: a score is not a finite number.
        """
        for row in rows:
            finite_metrics({f"{name}: score of {row.uid}": row.score}, step)
        for row in rows:
            self._samples.write({"step": step, "table": name, **row.as_dict()})
        if self._wandb:
            self._wandb.log_samples(name, rows, step)

    def history(self) -> dict[int, dict[str, float]]:
        """All metrics of the run by step, those before a resume included."""
        return read_metrics(self.folder / METRICS_FILE)

    def finish(self, exit_code: int = 0) -> None:
        """Write everything out; 0 marks the run as finished, anything else as failed."""
        self._metrics.close()
        self._samples.close()
        if self._wandb:
            self._wandb.finish(exit_code)

    def __enter__(self) -> Tracker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.finish(0 if kind is None else 1)
