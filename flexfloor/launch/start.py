"""Start the ranks of a run: own processes on this machine, or this process under `torchrun`.

Ranks are forked from a server that has imported already what they need, meet through a file, and
report through a pipe each. The parent waits for all pipes and all processes at once, so that it learns of
a result, an exception and a death alike.

Invariants:
- Results come back in rank order, whatever order the ranks finished in.
- A rank that raises, dies, hangs or outlives the limit ends all ranks within seconds; none is left behind,
  nor a helper that one has started, and the error names the rank that failed first.
- SIGTERM ends a run at once unless it is `stoppable`; then the ranks learn of it, and end it themselves.
- A `FlexFloorError` that a rank raised reaches the caller as its own type.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from multiprocessing.context import ForkServerContext
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

from flexfloor import device, heartbeat
from flexfloor.launch.orphans import RUN_MARK, new_mark
from flexfloor.launch.rank_process import Seat, rank_main, take_seat
from flexfloor.launch.rank_watch import RankWatch, StartedRank
from flexfloor.stop import forwarding_sigterm


def run_ranks(
    fn: Callable[..., Any],
    world_size: int,
    *args: Any,
    collective_timeout_seconds: float = 600,
    total_timeout_seconds: float | None = None,
    hang_seconds: float = 0,
    stacks_folder: Path | None = None,
    threads_per_rank: int | None = None,
    stoppable: bool = False,
) -> list[Any]:
    """`[fn(*args) on each rank]` in rank order, each with torch.distributed up and the patches applied.

    Args:
        fn: a module-level function; it, its arguments and its results travel by pickle.
        collective_timeout_seconds: how long a collective of the default group waits for a rank.
        total_timeout_seconds: how long all ranks together may take; no limit when None.
        hang_seconds: how long a rank may get nothing done (`heartbeat.beat`) before it hangs; 0 = for ever.
        stacks_folder: where the ranks' stacks are kept when one hangs; nowhere when None.
        threads_per_rank: CPU threads of a rank; when None the host's cores are shared out evenly.
        stoppable: whether `fn` looks at a `StopRequest`, so that SIGTERM is handed on to it.

    Raises:
        FlexFloorError: as a rank raised it.
        RankError: a rank raised anything else, died, hung, or the limit was reached. `rank_traceback` holds
            the rank's traceback, or where the unfinished ranks stood.
    """
    context = _context()
    work = bytes(ForkingPickler.dumps((fn, args)))
    threads = threads_per_rank or device.default_threads(world_size)
    mark = new_mark()
    with (
        tempfile.TemporaryDirectory(prefix="flexfloor-ranks-") as folder,
        _on_sigterm(Path(folder), stoppable) as for_ranks,
    ):
        environ = {**os.environ, **for_ranks, RUN_MARK: mark}
        seats = [
            Seat(
                rank=rank,
                world_size=world_size,
                local_rank=rank,
                init_method=f"file://{folder}/store",
                collective_timeout_seconds=collective_timeout_seconds,
                threads=threads,
            )
            for rank in range(world_size)
        ]
        watch = RankWatch(
            [_start(context, seat, work, environ, folder) for seat in seats],
            folder,
            mark=mark,
            hang_seconds=hang_seconds,
            stacks_folder=stacks_folder,
        )
        deadline = None if total_timeout_seconds is None else time.monotonic() + total_timeout_seconds
        try:
            return watch.results(deadline)
        finally:
            watch.end_all()


def run_this_rank(
    fn: Callable[..., Any],
    *args: Any,
    collective_timeout_seconds: float = 600,
    hang_seconds: float = 0,
    stacks_folder: Path | None = None,
    threads_per_rank: int | None = None,
) -> Any:
    """`fn(*args)` in this process, which a launcher has started as one rank of a run.

    What `fn` raises is raised here, with the process group left to die with the process: taking it down
    would wait for ranks that may be waiting for this one. When a rank hangs, all end (see `peer_watch`).
    """
    ranks_on_host = int(os.environ.get("LOCAL_WORLD_SIZE", os.environ["WORLD_SIZE"]))
    seat = Seat(
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
        local_rank=int(os.environ.get("LOCAL_RANK", os.environ["RANK"])),
        init_method="env://",
        collective_timeout_seconds=collective_timeout_seconds,
        threads=threads_per_rank or device.default_threads(ranks_on_host),
    )
    mark = os.environ[RUN_MARK] = new_mark()
    with heartbeat.stage("start-up"), heartbeat.allow(collective_timeout_seconds):
        leave = take_seat(seat)
    # Read here: Torch's store is not needed where ranks have a parent.
    from flexfloor.launch import peer_watch

    watch = peer_watch.PeerWatch(
        peer_watch.open_store(), seat, hang_seconds=hang_seconds, stacks_folder=stacks_folder, mark=mark
    )
    heartbeat.publish_with(watch.publish, hides_waits=not device.is_cpu_host())
    try:
        value = fn(*args)
    except Exception as error:
        told = watch.explain(error)
        if told is error:
            raise
        raise told from error
    watch.leave()
    leave()
    return value


def preload(*modules: str) -> None:
    """Let the fork server import these too, for ranks whose work needs them; before the first is started."""
    _own_preload.extend(modules)


_own_preload: list[str] = []


@functools.cache
def _context() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    # Some generated tasks follow the order of sets: with one seed a resumed run meets the same prompts.
    os.environ.setdefault("PYTHONHASHSEED", "0")
    # A CUDA context does not survive a fork, so that nothing may touch the device before it.
    heavy = ["flexfloor.preload"] if device.is_cpu_host() else []
    context.set_forkserver_preload(["flexfloor.fork_server", *_own_preload, *heavy])
    return context


def _on_sigterm(folder: Path, stoppable: bool) -> AbstractContextManager[dict[str, str]]:
    return forwarding_sigterm(folder / "stop") if stoppable else nullcontext({})


def _start(
    context: ForkServerContext, seat: Seat, work: bytes, environ: dict[str, str], folder: str
) -> StartedRank:
    ours, theirs = context.Pipe()
    process = context.Process(
        target=rank_main,
        args=(seat, work, theirs, environ, folder),
        name=f"rank {seat.rank} of {seat.world_size}",
    )
    process.start()
    theirs.close()
    return StartedRank(seat=seat, process=process, pipe=ours)
