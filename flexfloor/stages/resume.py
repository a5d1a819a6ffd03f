"""Which checkpoint a run goes on from, and what becomes of those that it leaves behind.

Invariants:
- Checkpoints of steps that a run trains again are set aside, never found again as its own.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch.distributed as dist

from flexfloor.config import TrainerConfig
from flexfloor.errors import CheckpointError
from flexfloor.train.checkpoint import latest_checkpoint, read_extra
from flexfloor.train.checkpoint_folder import move_from


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


def require_same_model(checkpoint: Path, identity: dict[str, Any]) -> None:
    """Raise `CheckpointError` naming the first setting of the model in which `checkpoint` is another one."""
    saved = read_extra(checkpoint)["model"]
    for name, here in identity.items():
        if saved.get(name) != here:
            raise CheckpointError(
                f"{checkpoint} holds another model: model.{name} is {saved.get(name)} there and {here} here; "
                "set trainer.default_local_dir or trainer.resume_mode=disable to start anew"
            )


def set_aside_from(trainer: TrainerConfig, first_step: int) -> None:
    """Move the run's checkpoints of `first_step` and later into a folder of their own; all ranks call it."""
    if dist.get_rank() == 0:
        folder = checkpoints_folder(trainer)
        move_from(folder, first_step, folder / f"set-aside-{time.strftime('%Y%m%d-%H%M%S')}")
    dist.barrier()
