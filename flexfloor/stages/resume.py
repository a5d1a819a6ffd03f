"""Which checkpoint a run goes on from, and what becomes of those that it leaves behind.

Invariants:
- A run goes on from files that are what was written, checked to the bit before anything is loaded.
- A run that has checkpoints never starts anew without being asked to.
- Checkpoints of steps that a run trains again are set aside, never found again as its own.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import torch.distributed as dist

from flexfloor.config import TrainerConfig
from flexfloor.errors import CheckpointError
from flexfloor.stages.own_checkpoints import checkpoints_folder, finds_checkpoint
from flexfloor.train.checkpoint import read_extra, require_intact
from flexfloor.train.checkpoint_folder import has_any, move_from, whole_checkpoints

logger = logging.getLogger(__name__)


def checkpoint_to_resume(trainer: TrainerConfig) -> Path | None:
    """The checkpoint that `trainer.resume_mode` asks for, the same on every rank; None to start anew.

    Raises:
        CheckpointError: on every rank, when the given one is damaged, or each of several that there are.
    """
    if trainer.resume_mode == "disable":
        return None
    if trainer.resume_from_path is not None:
        require_intact(Path(trainer.resume_from_path))
        return Path(trainer.resume_from_path)
    folder = checkpoints_folder(trainer)
    paths, has_broken = _found_by_first_rank(folder)
    for path in paths:
        try:
            require_intact(path)
        except CheckpointError as error:
            has_broken = True
            if dist.get_rank() == 0:
                logger.warning("passing over %s: %s", path, error)
        else:
            return path
    if has_broken:
        raise CheckpointError(
            f"no checkpoint in {folder} is whole (see the warnings above); "
            "trainer.resume_mode=disable starts anew and sets them aside"
        )
    return None


def will_resume(trainer: TrainerConfig) -> bool:
    """Whether `checkpoint_to_resume` will give a checkpoint or raise; all ranks call it."""
    found = [finds_checkpoint(trainer) if dist.get_rank() == 0 else False]
    dist.broadcast_object_list(found, src=0)
    return found[0]


def _found_by_first_rank(folder: Path) -> tuple[list[Path], bool]:
    """Checkpoints in `folder` whose files are all there, newest first; and whether there are others."""
    found: list[Any] = [None]
    if dist.get_rank() == 0:
        paths = list(whole_checkpoints(folder))
        found = [(paths, has_any(folder) and not paths)]
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
