"""What the ledger writes down: intervals of one rank, and one rank's account of one step.

Records are small and hold only numbers and words, so that every rank's can be gathered each step,
pickled, and kept as JSON.

Invariants:
- only a generating interval has an idle part, and that part lies inside the interval;
- a record's intervals tile `[0, seconds]` (checked by `balance.check_tiling`, Promise 4);
- in a lease the rank trains or waits for something to train, and all ranks of a lease note it (checked by
  `leases.check_leases`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """Who holds a rank: every moment of a step belongs to exactly one of these."""

    GENERATING = "generating"
    SHRINKING = "shrinking"
    TRAINING = "training"
    WAITING = "waiting"


ROLLOUT = "rollout"
"""Stage in which this step's responses are generated; the only one that counts as occupied."""

EARLY_UPDATE = "early_update"
"""Stage in which released ranks begin with the update while others still generate."""

OTHER = "other"
"""Stage of the moments that no stage was opened for."""

STATE_OF_STAGE: dict[str, State] = {
    ROLLOUT: State.GENERATING,
    "validation": State.GENERATING,
    "old_log_prob": State.TRAINING,
    "ref": State.TRAINING,
    "update": State.TRAINING,
    EARLY_UPDATE: State.TRAINING,
    "sft": State.TRAINING,
}
"""The state that a stage puts a rank in; in every other stage (reward, advantage, checkpoint, ...)
neither generation nor training holds the rank, so it is waiting, for what the stage's name says."""


LEASED_STATES = (State.TRAINING, State.WAITING)
"""Of a rank in a lease: it trains, or waits for something to train."""


def state_of_stage(stage: str) -> State:
    """The state that a rank is in during `stage`, when nothing more particular was said."""
    return STATE_OF_STAGE.get(stage, State.WAITING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A stretch of one rank's step spent in one state for one stage."""

    start_s: float
    """Seconds from the start of the step."""
    end_s: float
    """Seconds from the start of the step; not before `start_s`."""
    state: State
    stage: str
    """What the rank did or waited for: rollout, reward, update, ..."""
    idle_from_s: float | None = None
    """From here on the rank's own responses were finished and only its experts were needed."""

    def __post_init__(self) -> None:
        assert self.start_s <= self.end_s, f"{self.stage} ends at {self.end_s} before {self.start_s}"
        if self.idle_from_s is not None:
            assert self.state is State.GENERATING, f"{self.state} has no idle part"
            assert self.start_s <= self.idle_from_s <= self.end_s, f"idle part outside of {self}"

    @property
    def is_released(self) -> bool:
        """Whether the rank waits for a generation that it has left."""
        return self.state is State.WAITING and state_of_stage(self.stage) is State.GENERATING

    @property
    def is_early(self) -> bool:
        """Whether the rank trains in a lease, while others may still generate."""
        return self.state is State.TRAINING and self.stage == EARLY_UPDATE

    @property
    def seconds(self) -> float:
        """Length of the interval."""
        return self.end_s - self.start_s

    @property
    def idle_seconds(self) -> float:
        """Length of the part in which the rank's own responses were finished."""
        return 0.0 if self.idle_from_s is None else self.end_s - self.idle_from_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A grant of ranks that wait to a stage that trains on them meanwhile, as one of them notes it."""

    owner: str
    """The stage that holds the ranks."""
    ranks: tuple[int, ...]
    """Global ranks, ascending."""
    start_s: float
    """Seconds from the start of the step."""
    end_s: float
    """Seconds from the start of the step; when the rank was returned."""

    def __post_init__(self) -> None:
        assert self.start_s <= self.end_s, f"a lease to {self.owner} ends before it starts: {self}"
        is_ascending = list(self.ranks) == sorted(set(self.ranks))
        assert self.ranks and is_ascending, f"a lease to {self.owner} of ranks {self.ranks}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """One rank's account of one step."""

    rank: int
    step: int
    opened_s: float
    """Seconds from the start of this rank's books to the start of the step."""
    seconds: float
    """Length of the step on this rank."""
    intervals: tuple[Interval, ...]
    released_s: float | None = None
    """When the rank stopped taking part in generation before its end; None if it never did."""
    leases: tuple[Lease, ...] = ()
    """Of this rank, in order."""
