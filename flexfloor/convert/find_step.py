"""Which checkpoint is meant by the folder of a run or of a checkpoint."""

from __future__ import annotations

from pathlib import Path

from flexfloor.errors import CheckpointError
from flexfloor.train import checkpoint_folder


def find_step(path: Path) -> Path:
    """The newest whole checkpoint of the run at `path`, or `path` itself where it is one.

    Raises:
        CheckpointError: there is none.
    """
    if (path / checkpoint_folder.MANIFEST).exists():
        checkpoint_folder.require_whole(path)
        return path
    for folder in (path / "checkpoints", path):
        if folder.is_dir() and (found := checkpoint_folder.latest_checkpoint(folder)) is not None:
            return found
    raise CheckpointError(f"{path} is neither a checkpoint nor the folder of a run that has one")
