"""Which checkpoint a run goes on from."""

from __future__ import annotations

from pathlib import Path

import torch.distributed as dist

from flexfloor.config import TrainerConfig
from flexfloor.train.checkpoint import latest_checkpoint


def checkpoints_folder(trainer: TrainerConfig) -> Path:
    """Where the run keeps its checkpoints."""
    return Path(trainer.default_local_dir) / "checkpoints"


def checkpoint_to_resume(trainer: TrainerConfig) -> Path | None:
    """The checkpoint that `trainer.resume_mode` asks for, the same on every rank; None to start anew."""
    found: list[Path | None] = [None]
    if dist.get_rank() == 0 and trainer.resume_mode != "disable":
        given = trainer.resume_from_path
        found = [latest_checkpoint(checkpoints_folder(trainer)) if given is None else Path(given)]
    dist.broadcast_object_list(found, src=0)
    return found[0]
