"""Processes that a run's ranks have started, found by a mark in their environment.

A rank's process group ends with the rank, but a helper in a session of its own (a sandbox that a reward
function starts, a logger's service) does not. It has inherited the mark.

Invariants:
- Only processes that carry the mark of this run are ended.
"""

from __future__ import annotations

import contextlib
import os
import uuid

import psutil

RUN_MARK = "FLEXFLOOR_RUN"
"""Environment variable that the ranks of a run and their helpers share."""
_GRACE_SECONDS = 2.0


def new_mark() -> str:
    """A mark that no other run has."""
    return uuid.uuid4().hex


def end_marked(mark: str) -> None:
    """End all processes with `mark` but this one: SIGTERM, then SIGKILL for those that do not go."""
    found = [process for process in psutil.process_iter() if _mark_of(process) == mark]
    for process in found:
        with contextlib.suppress(psutil.Error):
            process.terminate()
    _, left = psutil.wait_procs(found, timeout=_GRACE_SECONDS) if found else ([], [])
    for process in left:
        with contextlib.suppress(psutil.Error):
            process.kill()


def _mark_of(process: psutil.Process) -> str | None:
    if process.pid == os.getpid():
        return None
    try:
        return process.environ().get(RUN_MARK)
    except (psutil.Error, OSError):
        return None
