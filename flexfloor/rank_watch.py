"""The parent's side of a launch: wait for results, deaths and the limit, and end every rank.

Invariants:
- The rank that an error names is the one that failed first: a killed one before any that merely noticed,
  then the earliest exception.
- After `end_all` no rank and no helper process of a rank is alive.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from typing import Any, NoReturn

from flexfloor.errors import RankError
from flexfloor.rank_process import SHOW_STACK, Report, Seat, stack_file

_SETTLE_SECONDS = 0.3
"""How long further reports are awaited after a failure, to find the first one."""
_LEAVE_SECONDS = 10.0
"""How long a rank that has reported may take to leave."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedRank:
    """A started process, the seat it was given, and the parent's end of its pipe."""

    seat: Seat
    process: ForkServerProcess
    pipe: Connection

    @property
    def pid(self) -> int:
        """Process id, which is also the id of the process group of the rank and its helpers."""
        pid = self.process.pid
        assert pid is not None, f"{self.seat.name} has not been started"
        return pid


class RankWatch:
    """Waits for `ranks`; `folder` is where they write their stacks when asked."""

    def __init__(self, ranks: list[StartedRank], folder: str) -> None:
        self._ranks = ranks
        self._folder = folder
        self._reports: dict[int, Report] = {}

    def results(self, deadline: float | None) -> list[Any]:
        """The ranks' results in rank order. Raises as `launch.run_ranks` does."""
        while unfinished := self._unfinished():
            if not self._await_any(unfinished, deadline):
                self._raise_overdue(unfinished)
            if self._failed():
                self._await_more()
                self._raise_failure()
        return [self._reports[started.seat.rank].value for started in self._ranks]

    def end_all(self) -> None:
        """Let ranks that succeeded leave, kill the others, and wait for all of them."""
        if not self._unfinished() and not self._failed():
            for started in self._ranks:
                with contextlib.suppress(BrokenPipeError):
                    started.pipe.send("leave")
            deadline = time.monotonic() + _LEAVE_SECONDS
            for started in self._ranks:
                started.process.join(max(0.0, deadline - time.monotonic()))
        for started in self._ranks:
            _kill(started)
            started.process.join()
            started.process.close()
            started.pipe.close()

    def _unfinished(self) -> list[StartedRank]:
        return [started for started in self._ranks if started.seat.rank not in self._reports]

    def _failed(self) -> bool:
        return any(report.failed_at_s is not None for report in self._reports.values()) or bool(self._dead())

    def _dead(self) -> list[StartedRank]:
        return [started for started in self._unfinished() if started.process.exitcode is not None]

    def _await_any(self, ranks: Iterable[StartedRank], deadline: float | None) -> bool:
        by_source: dict[Any, StartedRank] = {}
        for started in ranks:
            by_source[started.pipe] = by_source[started.process.sentinel] = started
        timeout = None if deadline is None else max(0.0, deadline - time.monotonic())
        ready = connection.wait(list(by_source), timeout)
        for started in {id(by_source[source]): by_source[source] for source in ready}.values():
            self._take_report(started)
        return bool(ready)

    def _take_report(self, started: StartedRank) -> None:
        if started.pipe.poll():
            # A process that died without a report leaves an empty pipe at its end.
            with contextlib.suppress(EOFError, ConnectionResetError):
                self._reports[started.seat.rank] = started.pipe.recv()
                return
        started.process.join(_SETTLE_SECONDS)

    def _await_more(self) -> None:
        deadline = time.monotonic() + _SETTLE_SECONDS
        while waiting := [started for started in self._unfinished() if started not in self._dead()]:
            if not self._await_any(waiting, deadline):
                return

    def _raise_failure(self) -> NoReturn:
        if dead := self._dead():
            started = min(dead, key=lambda rank: rank.process.exitcode or 0)
            raise RankError(f"{started.seat.name} {_end_of(started.process.exitcode)} before it reported")
        failures = [
            (report.failed_at_s, started.seat, report)
            for started in self._ranks
            if (report := self._reports.get(started.seat.rank)) and report.failed_at_s is not None
        ]
        _, seat, report = min(failures, key=lambda failure: failure[0])
        if report.error is not None:
            report.error.add_note(f"raised on {seat.name}:\n{report.rank_traceback}")
            raise report.error
        raise _rank_error(f"{seat.name}: {report.message}", report.rank_traceback)

    def _raise_overdue(self, unfinished: list[StartedRank]) -> NoReturn:
        # Without its stack file a rank is still starting, and the signal would end it.
        settled = [rank for rank in unfinished if stack_file(self._folder, rank.seat.rank).exists()]
        for started in settled:
            with contextlib.suppress(ProcessLookupError):
                os.kill(started.pid, SHOW_STACK)
        time.sleep(_SETTLE_SECONDS)
        stacks = [
            f"{started.seat.name} stood at\n{stack_file(self._folder, started.seat.rank).read_text()}"
            for started in settled
        ]
        names = ", ".join(started.seat.name for started in unfinished)
        raise _rank_error(f"the time limit was reached before {names} had finished", "\n".join(stacks))


def _rank_error(message: str, rank_traceback: str) -> RankError:
    error = RankError(message)
    error.rank_traceback = rank_traceback
    error.add_note(rank_traceback)
    return error


def _end_of(exitcode: int | None) -> str:
    if exitcode is not None and exitcode < 0:
        return f"was killed by {signal.Signals(-exitcode).name}"
    return f"ended with exit code {exitcode}"


def _kill(started: StartedRank) -> None:
    # The group holds the rank's helpers too, and may outlive the rank itself.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(started.pid, signal.SIGKILL)
    started.process.kill()
