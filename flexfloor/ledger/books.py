"""The books of one rank: at each moment of a step exactly one state holds the rank.

Entering a state ends the one before at the same clock reading, so no time can be lost or counted
twice. States nest: a shrink inside the rollout gives the rank back to generating when it is over.

Invariants:
- whatever the order of calls, the intervals of a closed step tile it without gap or overlap;
- an idle mark outlives a state nested in generating, and ends with `mark_busy` or the generating state;
- intervals of no length are not written, neighbours that say the same are one interval, but not across
  the start or the end of a lease;
- only a rank that waits is leased, to one owner at a time; until the lease ends, in the same step, it trains
  or waits for something to train.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from flexfloor.ledger.types import (
    LEASED_STATES,
    OTHER,
    ROLLOUT,
    Interval,
    Lease,
    State,
    StepRecord,
    state_of_stage,
)


@dataclass(slots=True, kw_only=True)
class _Frame:
    """A state that is open, or interrupted by one nested in it."""

    state: State
    stage: str
    idle_since: float | None = None
    """Clock reading at which the rank's own responses were finished."""


class Books:
    """Account of who holds this rank.

    Args:
        rank: global rank that the books belong to.
        clock: reads the seconds of a clock that never goes back.
    """

    def __init__(self, rank: int, clock: Callable[[], float] = time.perf_counter) -> None:
        self.rank = rank
        self._clock = clock
        self._began = clock()
        self._step: int | None = None
        self._frames: list[_Frame] = []
        self._intervals: list[Interval] = []
        self._origin = self._start = self._began
        self._released: float | None = None
        self._leases: list[Lease] = []
        self._is_leased = False
        self._is_edge = False
        """Whether a lease has started or ended since the last interval that was written."""

    def open_step(self, step: int) -> None:
        """Start the account of `step` now; call it right after a barrier, so that ranks share the zero."""
        assert self._step is None, f"rank {self.rank}: step {self._step} is still open at step {step}"
        self._step = step
        self._frames = [_Frame(state=State.WAITING, stage=OTHER)]
        self._intervals = []
        self._origin = self._start = self._clock()
        self._released = None
        self._leases = []

    def enter(self, state: State | str, stage: str | None = None) -> None:
        """Put the rank in `state` from now on, in place of the current state.

        `stage` defaults to the current one.
        """
        frame = self._new_frame(State(state), stage)
        self._end_interval()
        self._frames[-1] = frame

    @contextmanager
    def state(self, state: State | str, stage: str | None = None) -> Iterator[None]:
        """Put the rank in `state` inside the block; the state before resumes after it.

        `stage` defaults to the current one: a shrink during the rollout stays in the stage "rollout".
        """
        frame = self._new_frame(State(state), stage)
        self._end_interval()
        self._frames.append(frame)
        try:
            yield
        finally:
            self._end_interval()
            self._frames.pop()

    @contextmanager
    def stage(self, stage: str) -> Iterator[None]:
        """Put the rank in the state that `stage` means (see `types.STATE_OF_STAGE`) inside the block."""
        with self.state(state_of_stage(stage), stage):
            yield

    def mark_idle(self, at: float | None = None) -> None:
        """This rank's own responses are finished; from now on only its experts are needed.

        Args:
            at: reading of the clock at which that happened, when it was not just now.
        """
        now = self._clock()
        frame = self._generating_frame()
        assert at is None or at <= now, f"rank {self.rank}: idle from {at}, which is after {now}"
        if frame.idle_since is None:
            frame.idle_since = now if at is None else at

    def mark_busy(self) -> None:
        """This rank has responses of its own again (sequences moved to it)."""
        frame = self._generating_frame()
        if frame.idle_since is None:
            return
        if frame is self._top:
            self._end_interval()
        frame.idle_since = None

    def release(self) -> None:
        """From now on this rank takes no part in the generation of the current stage, and waits.

        The step's record notes it for the stage "rollout" alone: validation counts as no occupation.
        """
        self.enter(State.WAITING)
        if self._top.stage == ROLLOUT:
            assert self._released is None, f"rank {self.rank}: released twice in step {self._step}"
            self._released = self._start - self._origin

    @contextmanager
    def lease(self, owner: str, ranks: Sequence[int]) -> Iterator[None]:
        """Lease this rank to the stage `owner`, which trains on all of `ranks` inside the block.

        Each of the ranks calls it in its own books, after it has left what it generated with.
        """
        place = f"rank {self.rank}: a lease to {owner}"
        holder = next((each for each in self._frames if each.state is not State.WAITING), None)
        assert holder is None, f"{place} while it is {holder and f'{holder.state}: {holder.stage}'}"
        assert self.rank in ranks, f"{place} is one of ranks {ranks}"
        with self.state(State.TRAINING, owner):
            start_s = self._start - self._origin
            self._is_leased = self._is_edge = True
            try:
                yield
            finally:
                self._is_leased = False
        self._is_edge = True
        end_s = self._start - self._origin
        self._leases.append(Lease(owner=owner, ranks=tuple(sorted(ranks)), start_s=start_s, end_s=end_s))

    def close_step(self) -> StepRecord:
        """End the step now and return its account."""
        assert len(self._frames) <= 1, f"rank {self.rank}: {self._top.stage} is still open at the step's end"
        self._end_interval()
        assert self._step is not None
        record = StepRecord(
            rank=self.rank,
            step=self._step,
            opened_s=self._origin - self._began,
            seconds=self._start - self._origin,
            intervals=tuple(self._intervals),
            released_s=self._released,
            leases=tuple(self._leases),
        )
        self._step = None
        self._frames = []
        return record

    @property
    def _top(self) -> _Frame:
        assert self._frames, f"rank {self.rank}: no step is open"
        return self._frames[-1]

    def _new_frame(self, state: State, stage: str | None) -> _Frame:
        stage = stage or self._top.stage
        is_right = not self._is_leased or state in LEASED_STATES
        assert is_right, f"rank {self.rank}: {state}: {stage} in a lease"
        return _Frame(state=state, stage=stage)

    def _generating_frame(self) -> _Frame:
        for frame in reversed(self._frames):
            if frame.state is State.GENERATING:
                return frame
        raise AssertionError(f"rank {self.rank}: only a rank that generates can be idle or busy")

    def _end_interval(self) -> None:
        """Write what the current state held until now; what comes next begins at the same reading."""
        start, now, frame = self._start, self._clock(), self._top
        self._start = now
        if now == start:
            return
        idle_from = None if frame.idle_since is None else max(start, frame.idle_since)
        self._write(
            Interval(
                start_s=start - self._origin,
                end_s=now - self._origin,
                state=frame.state,
                stage=frame.stage,
                idle_from_s=None if idle_from is None else idle_from - self._origin,
            )
        )

    def _write(self, interval: Interval) -> None:
        last = self._intervals[-1] if self._intervals else None
        if last is not None and not self._is_edge and _continues(last, interval):
            self._intervals[-1] = replace(last, end_s=interval.end_s)
        else:
            self._intervals.append(interval)
        self._is_edge = False


def _continues(last: Interval, interval: Interval) -> bool:
    """Whether the two say the same, so that they can be written as one."""
    if (last.state, last.stage) != (interval.state, interval.stage):
        return False
    if last.idle_from_s is None:
        return interval.idle_from_s is None
    return interval.idle_from_s == interval.start_s
