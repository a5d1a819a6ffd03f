"""From what ranks reported and how they died to the one error that a user gets.

Invariants:
- The rank that an error names is the one that failed first: a killed one before any that merely noticed,
  then the earliest exception. A rank that lost its connection to another has merely noticed.
- The message names rank, step, stage and, where it can be told, the likely cause.
"""

from __future__ import annotations

import signal
import traceback
from collections.abc import Sequence
from dataclasses import dataclass

from flexfloor import heartbeat
from flexfloor.errors import FlexFloorError, RankError
from flexfloor.heartbeat import Beat
from flexfloor.launch.hang import GIB
from flexfloor.launch.rank_process import Report, Seat

_LOST_PEER = (
    "connection closed by peer",
    "connection reset by peer",
    "broken pipe",
    "remote process exited",
    "ncclremoteerror",
)
_CAUSES = {
    signal.SIGKILL: "the kernel's out-of-memory killer is the usual cause (`dmesg` shows it); a user or a "
    "scheduler can do it too",
    signal.SIGTERM: "a user or a scheduler asked for it",
    signal.SIGSEGV: "native code wrote or read where it may not",
    signal.SIGBUS: "memory behind a mapped file ran out; look at the free space of /dev/shm",
    signal.SIGABRT: "native code gave up; what it wrote is above",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """A rank that ended without a report."""

    seat: Seat
    exitcode: int
    beat: Beat | None
    """The last that was seen of it."""


def is_secondary(report: Report) -> bool:
    """Whether the rank only noticed that another one has gone."""
    return report.failed_at_s is not None and report.error is None and _names_lost_peer(report.message)


def is_lost_peer(error: Exception) -> bool:
    """Whether `error` is how a collective says that another rank has gone."""
    return not isinstance(error, FlexFloorError) and _names_lost_peer(str(error))


def _names_lost_peer(message: str) -> bool:
    return any(words in message.lower() for words in _LOST_PEER)


def error_of_death(deaths: Sequence[Death]) -> RankError:
    """The error for ranks that died: a killed one before one that ended by itself."""
    death = min(deaths, key=lambda death: death.exitcode)
    beat = death.beat or Beat()
    error = RankError(f"{death.seat.name} {_end_of(death)}")
    error.stage, error.was_killed = beat.stage, death.exitcode == -signal.SIGKILL
    return error


def error_of_reports(failures: Sequence[tuple[Seat, Report]]) -> FlexFloorError:
    """The error for ranks that raised: the earliest one's, unless it has merely noticed."""
    seat, report = min(failures, key=lambda failure: (is_secondary(failure[1]), failure[1].failed_at_s))
    if report.error is not None:
        report.error.add_note(f"raised on {seat.name}:\n{report.rank_traceback}")
        report.error.place = f"{seat.name}, {report.place}" if report.place else seat.name
        return report.error
    message = f"{seat.name}: {report.message}"
    if report.place:
        message += f"\nin {report.place}"
    return rank_error(message, report.rank_traceback)


def error_on_this_rank(seat: Seat, error: Exception) -> FlexFloorError:
    """The error for what the work on this rank raised, where there is no parent to tell it."""
    place = heartbeat.now().place
    if isinstance(error, FlexFloorError):
        error.place = f"{seat.name}, {place}" if place else seat.name
        return error
    message = f"{seat.name}: {type(error).__name__}: {error}" + (f"\nin {place}" if place else "")
    return rank_error(message, "".join(traceback.format_exception(error)))


def rank_error(message: str, rank_traceback: str) -> RankError:
    """A `RankError` whose traceback is shown in every way of printing it."""
    error = RankError(message)
    error.rank_traceback = rank_traceback
    error.add_note(rank_traceback)
    return error


def _end_of(death: Death) -> str:
    beat = death.beat or Beat()
    where = f" in {beat.place}" if beat.place else ""
    if death.exitcode >= 0:
        return f"ended with exit code {death.exitcode}{where} before it reported"
    end = signal.Signals(-death.exitcode)
    held = f"; it held {beat.rss_bytes / GIB:.1f} GiB of memory" if beat.rss_bytes else ""
    cause = f"\nlikely cause: {_CAUSES[end]}" if end in _CAUSES else ""
    return f"was killed by {end.name}{where} before it reported{held}{cause}"
