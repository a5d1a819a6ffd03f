"""A rank's signs of life: where it stands in the run, and that it still moves.

Whatever gets something done calls `beat`: a pass, a layer, a micro-batch, a score. That only counts. A
thread of the rank publishes the count every second, together with stage, step, memory and the line on which
the main thread stands; so a watcher sees a rank that stops moving, and one whose interpreter does not run
at all, because then the thread's own count stands still as well.

Invariants:
- Without `publish_with`, everything here only counts.
- A stage that ends with an error stays the rank's stage, so that a report of the error can name it.
- Time that was allowed is taken back together with a beat, so that it never counts against what follows.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

LOADING_STAGES = ("start-up", "set-up")
"""Stages that load libraries, under which an interpreter may stand still for long."""
PERIOD_SECONDS = 1.0
"""Time between two publications."""
_TORCH = f"{os.sep}torch{os.sep}"
_COLLECTIVES = f"{_TORCH}distributed{os.sep}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """What a rank publishes of itself."""

    beats: int = 0
    """Pieces of work done; grows as long as the rank gets on."""
    alive: int = 0
    """Publications; grows as long as the rank's interpreter runs."""
    step: int | None = None
    stage: str = ""
    allowed_seconds: float = 0.0
    """How much longer than usual the present piece of work may take."""
    waits: bool = False
    """Whether the main thread waits for other ranks, or may do so."""
    where: str = ""
    """File, line and function that the main thread is in."""
    rss_bytes: int = 0
    """Resident memory of the process."""
    pid: int = 0
    host: str = ""
    stopped: bool = False
    """Whether a signal has stopped the process, which only a watcher can tell."""

    @property
    def place(self) -> str:
        """Step and stage in words."""
        stage = f"stage {self.stage}" if self.stage else ""
        if self.step is None:
            return stage
        return f"step {self.step}, {stage or 'between two stages'}"

    def to_json(self) -> str:
        """One line that `from_json` reads."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Beat:
        """The beat that `to_json` wrote. Raises `ValueError` for anything else."""
        return cls(**json.loads(text))


class _Rank:
    """The state of this process."""

    def __init__(self) -> None:
        self.beats = 0
        self.step: int | None = None
        self.stage = ""
        self.allowed_seconds = 0.0
        self.waits = False
        self.lost_peer = ""
        self.on_change: Callable[[], object] = lambda: None


_rank = _Rank()


def beat() -> None:
    """Something got done."""
    _rank.beats += 1


def enter_step(step: int) -> None:
    """The rank is in `step` from now on."""
    _rank.step = step
    beat()
    _rank.on_change()


@contextmanager
def stage(name: str) -> Iterator[None]:
    """The rank is in stage `name` within the block, and after it if it raises."""
    before, _rank.stage = _rank.stage, name
    beat()
    _rank.on_change()
    yield
    _rank.stage = before
    beat()
    _rank.on_change()


@contextmanager
def allow(seconds: float) -> Iterator[None]:
    """Work in the block may take `seconds` longer than usual from one beat to the next."""
    before = _rank.allowed_seconds
    _rank.allowed_seconds = max(before, seconds)
    beat()
    try:
        yield
    finally:
        beat()
        _rank.allowed_seconds = before


@contextmanager
def waiting() -> Iterator[None]:
    """The rank waits for others in the block, in another way than in a collective."""
    _rank.waits = True
    try:
        yield
    finally:
        beat()
        _rank.waits = False


def lose_peer(name: str) -> None:
    """The rank `name` is gone: nobody needs to wait for it any more."""
    _rank.lost_peer = name


def check_peers() -> None:
    """Raise `ConnectionError` when a rank is known to be gone, for one that waits in no collective."""
    if _rank.lost_peer:
        raise ConnectionError(f"Connection closed by peer: {_rank.lost_peer} is gone")


def now() -> Beat:
    """This rank as it is, without the signs of the publishing thread."""
    # Read before the beats: an allowance is never seen gone without the beat that ended it.
    allowed_seconds = _rank.allowed_seconds
    return Beat(beats=_rank.beats, step=_rank.step, stage=_rank.stage, allowed_seconds=allowed_seconds)


def publish_with(publish: Callable[[Beat], object], *, hides_waits: bool = False) -> None:
    """Start the thread that hands `publish` a beat every second; it also gets each change of step and stage.

    Args:
        publish: quick; returns False to end the thread.
        hides_waits: whether waiting for other ranks may look like waiting for a device.
    """
    publisher = _Publisher(publish, hides_waits)
    _rank.on_change = publisher.publish
    threading.Thread(target=publisher.run, name="heartbeat", daemon=True).start()


class _Publisher:
    def __init__(self, publish: Callable[[Beat], object], hides_waits: bool) -> None:
        # Read here and below: counting alone needs nothing but Python (`tools/gpu_check.py`).
        import psutil

        self._publish, self._hides_waits = publish, hides_waits
        self._process, self._host = psutil.Process(), os.uname().nodename
        self._lock = threading.Lock()
        self._signs: dict[str, Any] = {}

    def run(self) -> None:
        for alive in itertools.count(1):
            waits, where = _main_thread()
            self._signs = {
                "alive": alive,
                "waits": waits or _rank.waits or self._hides_waits,
                "where": where,
                "rss_bytes": self._process.memory_info().rss,
                "pid": self._process.pid,
                "host": self._host,
            }
            if self.publish() is False:
                return
            time.sleep(PERIOD_SECONDS)

    def publish(self) -> object:
        # Two threads publish: without the lock the older state could be written last.
        with self._lock:
            return self._publish(dataclasses.replace(now(), **self._signs))


def is_stopped(pid: int) -> bool:
    """Whether a signal has stopped the process `pid` of this host."""
    import psutil

    try:
        return psutil.Process(pid).status() == psutil.STATUS_STOPPED
    except psutil.Error:
        return False


def is_gone(pid: int) -> bool:
    """Whether the process `pid` of this host has ended."""
    import psutil

    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _main_thread() -> tuple[bool, str]:
    """Whether the main thread is inside of a collective, and the line outside of Torch that it is on."""
    frame: FrameType | None = sys._current_frames().get(threading.main_thread().ident or 0)
    waits = False
    while frame is not None and _TORCH in frame.f_code.co_filename:
        waits = waits or _COLLECTIVES in frame.f_code.co_filename
        frame = frame.f_back
    if frame is None:
        return waits, ""
    return waits, f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
