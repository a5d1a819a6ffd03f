"""A rank's beat as a small file that the starting process reads.

Invariants:
- A beat is written by one system call over the one before, so a reader never waits; what it cannot make
  sense of it takes for no beat.
"""

from __future__ import annotations

import os
from pathlib import Path

from flexfloor.heartbeat import Beat

_BYTES = 4096


class BeatFile:
    """Written by one rank, read by its watcher.

    Args:
        folder: of the run's launch.
    """

    def __init__(self, folder: str, rank: int) -> None:
        self._path = Path(folder) / f"rank_{rank}.beat"
        self._written: int | None = None

    def write(self, beat: Beat) -> None:
        """Publish `beat` in place of the one before."""
        if self._written is None:
            self._written = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o600)
        os.pwrite(self._written, beat.to_json().encode().ljust(_BYTES), 0)

    def read(self) -> Beat | None:
        """The beat that was published last; None before the first one."""
        try:
            return Beat.from_json(self._path.read_text())
        except (OSError, ValueError, TypeError):
            return None
