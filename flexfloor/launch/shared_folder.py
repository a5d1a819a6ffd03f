"""Whether all machines of a run see the same folder.

Every rank reads and writes checkpoints in the run folder. A folder that belongs to one machine only, or a
relative path where machines start in different folders, would be noticed at the first resume.
"""

from __future__ import annotations

import os
import socket
import tempfile
import time
from pathlib import Path

import torch.distributed as dist

from flexfloor.errors import ConfigError

PATIENCE_SECONDS = 10.0
"""How long a file may take to be seen on another machine."""


def require_shared_folder(field: str, folder: Path) -> None:
    """Raise `ConfigError` on all ranks, naming `field`, unless all see what rank 0 writes in `folder`."""
    name = [_new_file(folder) if dist.get_rank() == 0 else ""]
    dist.broadcast_object_list(name, src=0)
    seen: list[tuple[bool, str]] = [(True, "")] * dist.get_world_size()
    dist.all_gather_object(seen, (_appears(folder / name[0]), f"{socket.gethostname()}:{folder.absolute()}"))
    if dist.get_rank() == 0:
        os.unlink(folder / name[0])
    blind = [rank for rank, (found, _) in enumerate(seen) if not found]
    if blind:
        raise ConfigError(
            f"{field} = {folder}: must be a folder that all machines share; rank {blind[0]} does not see in "
            f"{seen[blind[0]][1]} what rank 0 writes in {seen[0][1]}"
        )


def _new_file(folder: Path) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    number, path = tempfile.mkstemp(dir=folder, prefix=".seen-by-all-ranks-")
    os.close(number)
    return Path(path).name


def _appears(path: Path) -> bool:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not path.exists():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
