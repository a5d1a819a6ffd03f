"""Which rank hangs, judged from the beats of all ranks. Pure: no process is touched.

A rank hangs when its interpreter stands still, when it gets nothing done without waiting for others, or
when all ranks wait and none gets anything done. A rank that waits while another works does not hang.

Invariants:
- Only time in which the watcher itself ran counts: a suspended job that goes on has not hung.
- A rank that has not shown a beat yet is not judged, and nobody who may wait for it is.
- A rank that is done gives those that are left their whole time again.
- An allowance of one rank holds for all that wait for it. No allowance is one to be stopped by a signal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from flexfloor.heartbeat import LOADING_STAGES, Beat

_LONGEST_LOOK_SECONDS = 5.0
"""Most that may pass for time between two looks."""
GIB = 2**30


class HangKind(Enum):
    """What is known of the way a rank hangs."""

    FROZEN = "its interpreter stands still"
    STUCK = "it gets nothing done, and waits for nobody"
    APART = "all ranks wait for each other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hang:
    """A rank that hangs."""

    rank: int
    kind: HangKind
    seconds: float
    """How long nothing has been seen of it."""


@dataclass(slots=True)
class _Clock:
    beat: Beat
    still: float = 0.0
    """Seconds since the rank got something done."""
    stuck: float = 0.0
    """Seconds since it got something done or waited for others."""
    frozen: float = 0.0
    """Seconds since its interpreter ran."""

    def advance(self, beat: Beat, seconds: float) -> None:
        works = beat.beats != self.beat.beats
        self.still = 0.0 if works else self.still + seconds
        self.stuck = 0.0 if works or beat.waits else self.stuck + seconds
        self.frozen = 0.0 if beat.alive != self.beat.alive else self.frozen + seconds
        self.beat = beat


class HangWatch:
    """Looks at the beats again and again.

    Args:
        hang_seconds: how long a rank may get nothing done; 0 = for ever.
    """

    def __init__(self, hang_seconds: float) -> None:
        self.hang_seconds = hang_seconds
        self._clocks: dict[int, _Clock] = {}
        self._looked: float | None = None
        self._num_ranks = 0

    def look(self, now: float, beats: Mapping[int, Beat | None]) -> Hang | None:
        """The rank that hangs, if any does.

        Args:
            now: reading of a clock that never goes back, seconds.
            beats: of the ranks that are not done; None for one that has not shown any yet.
        """
        passed = 0.0 if self._looked is None else min(now - self._looked, _LONGEST_LOOK_SECONDS)
        self._looked = now
        if len(beats) < self._num_ranks:
            # What a rank that is done let the others wait for may only just have come.
            for clock in self._clocks.values():
                clock.still = 0.0
        self._num_ranks = len(beats)
        shown = {rank: beat for rank, beat in beats.items() if beat is not None}
        for rank, beat in shown.items():
            if rank in self._clocks:
                self._clocks[rank].advance(beat, passed)
            else:
                self._clocks[rank] = _Clock(beat)
        if not self.hang_seconds or not shown:
            return None
        all_shown = len(shown) == len(beats)
        return self._frozen(shown) or self._stuck(shown) or (self._apart(shown) if all_shown else None)

    def _frozen(self, ranks: Iterable[int]) -> Hang | None:
        rank = max(ranks, key=lambda rank: self._clocks[rank].frozen)
        beat, seconds = self._clocks[rank].beat, self._clocks[rank].frozen
        loads = beat.stage in LOADING_STAGES and not beat.stopped
        limit = self._limit(rank) if loads else self.hang_seconds
        return Hang(rank=rank, kind=HangKind.FROZEN, seconds=seconds) if seconds > limit else None

    def _stuck(self, ranks: Iterable[int]) -> Hang | None:
        late = [rank for rank in ranks if self._clocks[rank].stuck > self._limit(rank)]
        if not late:
            return None
        rank = max(late, key=lambda rank: self._clocks[rank].stuck)
        return Hang(rank=rank, kind=HangKind.STUCK, seconds=self._clocks[rank].still)

    def _apart(self, ranks: Iterable[int]) -> Hang | None:
        ranks = list(ranks)
        limit = max(self._limit(rank) for rank in ranks)
        if any(self._clocks[rank].still <= limit for rank in ranks):
            return None
        rank = min(ranks, key=self._progress)
        return Hang(rank=rank, kind=HangKind.APART, seconds=self._clocks[rank].still)

    def _limit(self, rank: int) -> float:
        return self.hang_seconds + self._clocks[rank].beat.allowed_seconds

    def _progress(self, rank: int) -> tuple[int, int]:
        beat = self._clocks[rank].beat
        return (-1 if beat.step is None else beat.step), beat.beats


def likely_cause(hang: Hang, beats: Mapping[int, Beat | None]) -> str:
    """Why `hang.rank` probably hangs, in words."""
    beat = beats[hang.rank] or Beat()
    if beat.stopped:
        return "its process is stopped, by SIGSTOP or a debugger"
    if hang.kind is HangKind.FROZEN:
        return (
            "its process is stopped or starved of memory, or native code (a regular expression in a reward "
            f"function, an extension) does not let the interpreter go; just before it stood at {beat.where}"
        )
    if hang.kind is HangKind.STUCK:
        return f"it stands at {beat.where}, and the other ranks wait for it"
    places = "; ".join(f"rank {rank} at {each.where}" for rank, each in sorted(beats.items()) if each)
    return f"ranks wait for each other in different collectives, or for one that has left: {places}"


def hang_message(name: str, hang: Hang, beats: Mapping[int, Beat | None], limit: float) -> str:
    """The message of a hang: rank, step, stage, likely cause, and the setting that found it."""
    place = (beats[hang.rank] or Beat()).place
    return (
        f"{name} hangs{f' in {place}' if place else ''}: nothing was done for {hang.seconds:.0f} seconds "
        f"(launch.hang_seconds = {limit:g})\n"
        f"likely cause: {likely_cause(hang, beats)}"
    )
