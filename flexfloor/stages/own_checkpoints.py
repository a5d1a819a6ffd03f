"""Where a run keeps its checkpoints, and whether there is one that it has to go on from; reads none."""

from __future__ import annotations

from pathlib import Path

from flexfloor.config import TrainerConfig
from flexfloor.train.checkpoint_folder import has_any


def checkpoints_folder(trainer: TrainerConfig) -> Path:
    """Where the run keeps its checkpoints."""
    return Path(trainer.default_local_dir) / "checkpoints"


def finds_checkpoint(trainer: TrainerConfig) -> bool:
    """Whether there is a checkpoint that the run goes on from, or that it fails for because it is broken."""
    if trainer.resume_mode != "auto":
        return trainer.resume_mode == "path"
    return has_any(checkpoints_folder(trainer))
