"""Where the threads of ranks stand: asked for by a signal, read from files, kept for a user to look at."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path

SHOW_STACK = signal.SIGUSR1
"""The signal on which a rank writes where its threads stand to `stack_file`."""
STACKS_FILE = "stacks.txt"
_MAX_WAIT_SECONDS = 3.0
_POLL_SECONDS = 0.1
_CALLS_SHOWN = 3
"""Calls of each thread: enough to get from a library to the code that called it."""


def stack_file(folder: str, rank: int) -> Path:
    """Where `rank` writes its threads' stacks on `SHOW_STACK`."""
    return Path(folder) / f"rank_{rank}.stack"


def ask_for_stacks(folder: str, pids: Mapping[int, int]) -> dict[int, str]:
    """What the ranks of `pids` (rank: process id) write; empty for one that does not answer in time.

    A rank that has no file yet is still starting: the signal would end it, and it is left out.
    """
    asked = {rank: pid for rank, pid in pids.items() if stack_file(folder, rank).exists()}
    for pid in asked.values():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, SHOW_STACK)
    deadline, found = time.monotonic() + _MAX_WAIT_SECONDS, dict.fromkeys(asked, "")
    while time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
        before, found = found, {rank: stack_file(folder, rank).read_text() for rank in asked}
        if all(found.values()) and found == before:
            break
    return found


def main_thread(stacks: str) -> str:
    """The main thread's part of what faulthandler wrote, the most recent call last as in a traceback."""
    part = stacks.replace("Current thread", "Thread").rpartition("Thread ")[2]
    return "\n".join(reversed(part.rstrip().splitlines()[1:]))


def innermost_calls(stacks: str) -> str:
    """The last calls of each thread, of what faulthandler wrote; the most recent first."""
    parts = [
        part.rstrip().splitlines() for part in stacks.replace("Current thread", "Thread").split("Thread ")
    ]
    return "\n".join("\n".join(part[1 : 1 + _CALLS_SHOWN]) for part in parts if len(part) > 1)


def keep_stacks(folder: Path, stacks: Mapping[int, str]) -> Path:
    """Write all stacks to one file in `folder` and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / STACKS_FILE
    path.write_text(
        "\n".join(f"rank {rank}\n{text or 'no answer'}\n" for rank, text in sorted(stacks.items()))
    )
    return path
