"""The parent's side of a launch: wait for results, deaths, hangs and the limit, and end every rank.

Invariants:
- After `end_all` no rank and no helper process of a rank is alive.
- Which rank an error names is decided in `rank_failure` and `hang` alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, NoReturn

from flexfloor.heartbeat import Beat, is_stopped
from flexfloor.launch.beat_file import BeatFile
from flexfloor.launch.hang import Hang, HangKind, HangWatch, hang_message
from flexfloor.launch.orphans import end_marked
from flexfloor.launch.rank_failure import Death, error_of_death, error_of_reports, is_secondary, rank_error
from flexfloor.launch.rank_process import Report, Seat
from flexfloor.launch.stacks import ask_for_stacks, innermost_calls, keep_stacks, main_thread

logger = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0
"""How often beats are looked at."""
_SETTLE_SECONDS = 0.3
"""How long further reports are awaited after a failure, to find the first one."""
_CULPRIT_SECONDS = 5.0
"""How long they are awaited while all failures are of ranks that merely noticed one."""
_LEAVE_SECONDS = 10.0
"""How long a rank that has reported may take to leave, and a killed one to be gone."""


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
    """Waits for `ranks`.

    Args:
        folder: where the ranks show their beats, and write their stacks when asked.
        mark: of the helpers that they start.
        hang_seconds: how long a rank may get nothing done; 0 = for ever.
        stacks_folder: where the stacks of a hang are kept; None = nowhere.
    """

    def __init__(
        self,
        ranks: list[StartedRank],
        folder: str,
        *,
        mark: str,
        hang_seconds: float,
        stacks_folder: Path | None,
    ) -> None:
        self._ranks, self._folder, self._mark = ranks, folder, mark
        self._stacks_folder = stacks_folder
        self._beat_files = {started.seat.rank: BeatFile(folder, started.seat.rank) for started in ranks}
        self._hang_watch = HangWatch(hang_seconds)
        self._reports: dict[int, Report] = {}

    def results(self, deadline: float | None) -> list[Any]:
        """The ranks' results in rank order. Raises as `launch.run_ranks` does."""
        while unfinished := self._unfinished():
            next_look = time.monotonic() + _LOOK_SECONDS
            self._await_any(unfinished, next_look if deadline is None else min(next_look, deadline))
            if self._failed():
                self._await_more()
                self._raise_failure()
            if deadline is not None and time.monotonic() >= deadline and self._unfinished():
                self._raise_overdue(self._unfinished())
            self._look_for_a_hang()
        return [self._reports[started.seat.rank].value for started in self._ranks]

    def end_all(self) -> None:
        """Let ranks that succeeded leave, kill the others, and wait for all of them."""
        deadline = time.monotonic() + _LEAVE_SECONDS
        if not self._unfinished() and not self._failed():
            for started in self._ranks:
                with contextlib.suppress(BrokenPipeError):
                    started.pipe.send("leave")
            for started in self._ranks:
                started.process.join(max(0.0, deadline - time.monotonic()))
        for started in self._ranks:
            _kill(started)
        end_marked(self._mark)
        for started in self._ranks:
            started.process.join(_LEAVE_SECONDS)
            if started.process.exitcode is None:
                logger.error("%s (process %d) does not end on SIGKILL", started.seat.name, started.pid)
                continue
            started.process.close()
            started.pipe.close()

    def _unfinished(self) -> list[StartedRank]:
        return [started for started in self._ranks if started.seat.rank not in self._reports]

    def _failures(self) -> list[tuple[Seat, Report]]:
        reported = [(started.seat, self._reports.get(started.seat.rank)) for started in self._ranks]
        return [(seat, report) for seat, report in reported if report and report.failed_at_s is not None]

    def _failed(self) -> bool:
        return bool(self._failures() or self._dead())

    def _dead(self) -> list[StartedRank]:
        return [started for started in self._unfinished() if started.process.exitcode is not None]

    def _await_any(self, ranks: Iterable[StartedRank], deadline: float) -> None:
        by_source: dict[Any, StartedRank] = {}
        for started in ranks:
            by_source[started.pipe] = by_source[started.process.sentinel] = started
        ready = connection.wait(list(by_source), max(0.0, deadline - time.monotonic()))
        for started in {id(by_source[source]): by_source[source] for source in ready}.values():
            self._take_report(started)

    def _take_report(self, started: StartedRank) -> None:
        if started.pipe.poll():
            # A process that died without a report leaves an empty pipe at its end.
            with contextlib.suppress(EOFError, ConnectionResetError):
                self._reports[started.seat.rank] = started.pipe.recv()
                return
        started.process.join(_SETTLE_SECONDS)

    def _await_more(self) -> None:
        start = time.monotonic()
        while waiting := [started for started in self._unfinished() if started not in self._dead()]:
            noticed = not self._dead() and all(is_secondary(report) for _, report in self._failures())
            deadline = start + (_CULPRIT_SECONDS if noticed else _SETTLE_SECONDS)
            if time.monotonic() >= deadline:
                return
            self._await_any(waiting, deadline)

    def _raise_failure(self) -> NoReturn:
        if dead := self._dead():
            raise error_of_death(
                [
                    Death(seat=each.seat, exitcode=each.process.exitcode or 0, beat=self._beat(each))
                    for each in dead
                ]
            )
        raise error_of_reports(self._failures())

    def _raise_overdue(self, unfinished: list[StartedRank]) -> NoReturn:
        stacks = ask_for_stacks(self._folder, {each.seat.rank: each.pid for each in unfinished})
        shown = [f"{each.seat.name} stood at\n{stacks.get(each.seat.rank, '')}" for each in unfinished]
        names = ", ".join(started.seat.name for started in unfinished)
        raise rank_error(f"the time limit was reached before {names} had finished", "\n".join(shown))

    def _look_for_a_hang(self) -> None:
        beats = {started.seat.rank: self._beat(started) for started in self._unfinished()}
        hang = self._hang_watch.look(time.monotonic(), beats)
        if hang is not None:
            self._raise_hang(hang, beats)

    def _raise_hang(self, hang: Hang, beats: dict[int, Beat | None]) -> NoReturn:
        [culprit] = [started for started in self._ranks if started.seat.rank == hang.rank]
        message = hang_message(culprit.seat.name, hang, beats, self._hang_watch.hang_seconds)
        pids = {started.seat.rank: started.pid for started in self._unfinished()}
        stacks = ask_for_stacks(self._folder, pids)
        if self._stacks_folder is not None:
            message += f"\nall ranks' stacks: {keep_stacks(self._stacks_folder, stacks)}"
        # Any thread may hold an interpreter that stands still.
        show = innermost_calls if hang.kind is HangKind.FROZEN else main_thread
        shown = show(stacks.get(hang.rank, ""))
        raise rank_error(message, f"{culprit.seat.name} stood at\n{shown}" if shown else "")

    def _beat(self, started: StartedRank) -> Beat | None:
        beat = self._beat_files[started.seat.rank].read()
        return beat and dataclasses.replace(beat, stopped=is_stopped(started.pid))


def _kill(started: StartedRank) -> None:
    # The group holds the rank's helpers too, and may outlive the rank itself.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(started.pid, signal.SIGKILL)
    started.process.kill()
