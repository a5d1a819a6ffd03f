"""Weights & Biases: metrics, configuration, pictures and sample tables of a run.

Offline unless the environment's WANDB_MODE says otherwise, and silent. Files lie in the run folder.
A resumed run goes on under the same id; where W&B has already seen a step that is run again, the
second account is a row of its own, at the right place of the step axis.

Invariants:
- every row carries `training/global_step`, which is the x axis of every chart;
- what a user can mend is a `FlexFloorError` that names `trainer.logger`.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from flexfloor.errors import FlexFloorError
from flexfloor.track.samples import SAMPLE_COLUMNS, SampleRow

STEP_METRIC = "training/global_step"
"""verl's name for the training step of a row."""


def new_run_id() -> str:
    """WANDB_RUN_ID where it is set, else a new id; no random generator of the training is touched."""
    return os.environ.get("WANDB_RUN_ID") or secrets.token_hex(4)


class WandbRun:
    """One W&B run; rank 0 holds it.

    Args:
        project: W&B project.
        name: the run's name as people see it.
        run_id: the run's id; a run with this id is continued.
        folder: folder of the run, under which W&B makes its own `wandb/`.
        config: what is shown as the run's configuration.

    Raises:
        FlexFloorError: W&B cannot write to the folder, or does not start.
    """

    def __init__(
        self, *, project: str, name: str, run_id: str, folder: Path, config: Mapping[str, Any]
    ) -> None:
        import wandb

        with _named_failure(folder):
            _make_writable(folder / "wandb")
            self._run = wandb.init(
                project=project,
                name=name,
                id=run_id,
                resume="allow",
                mode=cast(Any, os.environ.get("WANDB_MODE") or "offline"),
                dir=str(folder),
                config=dict(config),
                settings=wandb.Settings(silent=True, console="off"),
            )
            self._run.define_metric("*", step_metric=STEP_METRIC)
        self._has_open_row = False
        """Whether W&B still holds a row back, to which more of the same step may come."""

    def log(self, values: Mapping[str, Any], step: int) -> None:
        """Log metrics or media of a training step."""
        row = {**values, STEP_METRIC: step}
        with _named_failure(Path(self._run.dir)):
            if step >= self._run.step:
                self._run.log(row, step=step)
                self._has_open_row = True
            else:  # W&B drops a row with a step below one it has seen, so this one goes without
                if self._has_open_row:
                    self._run.log({}, commit=True)
                self._run.log(row)
                self._has_open_row = False

    def log_image(self, name: str, path: Path, step: int) -> None:
        """Log a picture file."""
        import wandb

        self.log({name: wandb.Image(str(path))}, step)

    def log_samples(self, name: str, rows: Sequence[SampleRow], step: int) -> None:
        """Log samples as a table."""
        import wandb

        data = [list(row.as_dict().values()) for row in rows]
        self.log({name: wandb.Table(columns=list(SAMPLE_COLUMNS), data=data)}, step)

    def finish(self, exit_code: int = 0) -> None:
        """Complete the run and end W&B's helper process; 0 marks the run as finished, else failed."""
        import wandb

        with _named_failure(Path(self._run.dir)):
            wandb.teardown(exit_code=exit_code)


def _make_writable(folder: Path) -> None:
    """Make the folder; where W&B could not write it would go to a temporary folder without a word."""
    folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK):
        raise PermissionError(f"{folder} is not writable")


@contextmanager
def _named_failure(folder: Path) -> Iterator[None]:
    """Say of W&B's own and of file errors which setting they belong to, and the way around them."""
    import wandb

    try:
        yield
    except (wandb.Error, OSError, ValueError) as error:
        raise FlexFloorError(
            f"trainer.logger: wandb failed in {folder}: {error}\n"
            "Check the folder, the network and `wandb login` (WANDB_MODE=offline needs neither of the last "
            "two), or take wandb out of trainer.logger."
        ) from error
