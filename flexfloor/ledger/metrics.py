"""What a step's records say about the time of its ranks, as metrics.

Occupied is the design's word: rank-seconds from the start of generation to a rank's release, or to
the end of generation (of the last rank) if it was never released. Within it a rank is idle when it
neither works on responses of its own nor takes part in a shrink.

Invariants:
- the four `ledger/*_seconds` sum to world x wall time;
- the `timing_s/*` of the stages sum to `timing_s/step`;
- only the stage "rollout" counts as occupied: validation does not change a `rollout/*` metric.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flexfloor.ledger.balance import state_seconds
from flexfloor.ledger.types import EARLY_UPDATE, ROLLOUT, Interval, State, StepRecord

TIMING_NAME = {
    ROLLOUT: "gen",
    "update": "update_actor",
    "advantage": "adv",
    "validation": "testing",
    "checkpoint": "save_checkpoint",
}
"""verl's `timing_s/*` name of a stage, where it differs from ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupation:
    """Rank-seconds of one step's generation, over all ranks."""

    wall_s: float
    """From the first rank's start of generation to the last rank's end, in seconds."""
    occupied_s: float
    """Sum over ranks of the time from start of generation to release, in rank-seconds."""
    idle_s: float
    """The part of `occupied_s` after a rank's own responses were finished, in rank-seconds."""


def occupation(records: Sequence[StepRecord]) -> Occupation:
    """How generation of the records' step held its ranks; all zero when nothing was generated."""
    spans = {record.rank: _rollout(record) for record in records}
    active = [interval for intervals in spans.values() for interval in intervals]
    if not active:
        return Occupation(wall_s=0.0, occupied_s=0.0, idle_s=0.0)
    end = max(interval.end_s for interval in active)
    occupied = busy = 0.0
    for record in records:
        if intervals := spans[record.rank]:
            released = end if record.released_s is None else record.released_s
            occupied += released - intervals[0].start_s
            busy += sum(interval.seconds - interval.idle_seconds for interval in intervals)
    start = min(interval.start_s for interval in active)
    return Occupation(wall_s=end - start, occupied_s=occupied, idle_s=max(0.0, occupied - busy))


def _rollout(record: StepRecord) -> list[Interval]:
    """The intervals in which the rank took part in this step's generation."""
    held = (State.GENERATING, State.SHRINKING)
    return [interval for interval in record.intervals if interval.stage == ROLLOUT and interval.state in held]


def ledger_metrics(records: Sequence[StepRecord], num_response_tokens: int) -> dict[str, float]:
    """Metrics of one step: `ledger/*` always, `rollout/*` when something was generated.

    Args:
        records: settled records of all ranks.
        num_response_tokens: tokens that all ranks generated in the stage "rollout".
    """
    metrics = {f"ledger/{state}_seconds": seconds for state, seconds in state_seconds(records).items()}
    held = occupation(records)
    if held.occupied_s > 0.0:
        metrics["rollout/occupied_fraction"] = held.occupied_s / (len(records) * held.wall_s)
        metrics["rollout/idle_fraction"] = held.idle_s / held.occupied_s
        metrics["rollout/tokens_per_occupied_second"] = num_response_tokens / held.occupied_s
        metrics["rollout/throughput"] = num_response_tokens / held.wall_s
    return metrics


def overlap_metrics(records: Sequence[StepRecord]) -> dict[str, float]:
    """`overlap/*` of a step in which ranks were leased, in rank-seconds; nothing of another.

    `overlap/hidden_seconds` is training in leases until the last rank had generated, and
    `overlap/waiting_seconds` what leased ranks waited for something to train.
    """
    if not any(record.leases for record in records):
        return {}
    end = max((each.end_s for record in records for each in _rollout(record)), default=0.0)
    seconds = dict.fromkeys((State.TRAINING, State.WAITING), 0.0)
    for record in records:
        for each in record.intervals:
            if each.stage == EARLY_UPDATE:
                seconds[each.state] += max(0.0, min(each.end_s, end) - each.start_s)
    return {
        "overlap/hidden_seconds": seconds[State.TRAINING],
        "overlap/waiting_seconds": seconds[State.WAITING],
    }


def timing_metrics(records: Sequence[StepRecord]) -> dict[str, float]:
    """`timing_s/*`: the mean over ranks of the seconds in each stage, and `timing_s/step`."""
    seconds: dict[str, float] = {}
    for record in records:
        for interval in record.intervals:
            name = f"timing_s/{TIMING_NAME.get(interval.stage, interval.stage)}"
            seconds[name] = seconds.get(name, 0.0) + interval.seconds / len(records)
    seconds["timing_s/step"] = records[0].seconds
    return seconds
