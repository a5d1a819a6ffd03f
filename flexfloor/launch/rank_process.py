"""One rank's own side of a launch: take a seat in the process group, do the work, report.

Invariants:
- Whatever happens to the work, one report is sent, unless the process itself is killed.
- After its report a rank waits for the parent before it leaves the process group, so that no peer sees a
  connection close under a collective.
- A rank whose parent is gone ends itself and the processes that it started.
- From its first moment on a rank shows its beat.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import pickle
import signal
import socket
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.distributed as dist

from flexfloor import device, heartbeat
from flexfloor.errors import FlexFloorError
from flexfloor.launch.beat_file import BeatFile
from flexfloor.launch.orphans import RUN_MARK, end_marked
from flexfloor.launch.stacks import SHOW_STACK, stack_file
from flexfloor.stop import STOP_FILE


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """One rank's place in a run, and the terms of its process group."""

    rank: int
    world_size: int
    local_rank: int
    init_method: str
    collective_timeout_seconds: float
    threads: int

    @property
    def name(self) -> str:
        """`rank r of w`, the way that every message names it."""
        return f"rank {self.rank} of {self.world_size}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a rank sends to the parent: a result or a failure."""

    value: Any = None
    failed_at_s: float | None = None
    """On the host's monotonic clock; None when the work succeeded."""
    message: str = ""
    rank_traceback: str = ""
    place: str = ""
    """Step and stage of the failure, in words."""
    error: FlexFloorError | None = None
    """The exception itself where a user can mend it."""


def take_seat(seat: Seat) -> Callable[[], None]:
    """Claim the device, apply the patches, join the process group; returns the function that leaves it."""
    torch.set_num_threads(seat.threads)
    device.claim_device(seat.local_rank)
    # Read here: the package imports Torch only, and start-up is what touches Megatron-Core.
    import megatron_patches

    megatron_patches.start_up()
    dist.init_process_group(
        device.backend(),
        init_method=seat.init_method,
        rank=seat.rank,
        world_size=seat.world_size,
        timeout=timedelta(seconds=seat.collective_timeout_seconds),
    )
    return dist.destroy_process_group


def rank_main(seat: Seat, work: bytes, pipe: Connection, environ: dict[str, str], folder: str) -> None:
    """The main function of a started rank: `work` is the pickled function and its arguments."""
    _settle(seat, environ, folder)
    leave: Callable[[], None] | None = None
    try:
        with heartbeat.stage("start-up"), heartbeat.allow(seat.collective_timeout_seconds):
            leave = take_seat(seat)
        fn, args = pickle.loads(work)
        pipe.send(Report(value=fn(*args)))
    except BaseException as error:  # noqa: BLE001  the parent raises it again, whatever it is
        pipe.send(_failure(error))
    try:
        pipe.recv()
    except EOFError:
        return
    if leave is not None:
        leave()


def _settle(seat: Seat, environ: dict[str, str], folder: str) -> None:
    # An own process group: the rank's helpers end with it, and Ctrl-C reaches the parent alone.
    os.setpgid(0, 0)
    # The fork server still has the environment of the day it was started.
    os.environ.clear()
    os.environ.update(environ)
    # Inherited from the fork server, which ignores it. A run that can be stopped listens once it is set up.
    signal.signal(signal.SIGTERM, signal.SIG_IGN if STOP_FILE in environ else signal.SIG_DFL)
    if "lo" in (name for _, name in socket.if_nameindex()):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    faulthandler.register(SHOW_STACK, stack_file(folder, seat.rank).open("w"), all_threads=True)
    heartbeat.publish_with(BeatFile(folder, seat.rank).write, hides_waits=not device.is_cpu_host())
    threading.Thread(target=_follow_parent, name="follow-parent", daemon=True).start()


def _follow_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "a rank is started by a parent"
    parent.join()
    end_marked(os.environ[RUN_MARK])
    os.killpg(0, signal.SIGKILL)


def _failure(error: BaseException) -> Report:
    notes = getattr(error, "__notes__", [])
    return Report(
        failed_at_s=time.monotonic(),
        message="\n".join([f"{type(error).__name__}: {error}", *notes]),
        rank_traceback="".join(traceback.format_exception(error)),
        place=heartbeat.now().place,
        error=_if_picklable(error) if isinstance(error, FlexFloorError) else None,
    )


def _if_picklable(error: FlexFloorError) -> FlexFloorError | None:
    try:
        return pickle.loads(pickle.dumps(error))
    except (TypeError, AttributeError, pickle.PicklingError):
        return None
