"""The ledger's account of a simulated step, so that real and simulated runs are measured by one code.

Invariants:
- Each rank's intervals tile the step.
- A rank is occupied from the start to the end of the shrink in which it left, to its own end if it parted, or
  to the end of generation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from flexfloor.ledger.types import EARLY_UPDATE, ROLLOUT, Interval, State, StepRecord
from flexfloor.simulate.clock import Clock

UPDATE, JOIN = "update", "join"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStory:
    """What one rank did in a step, in seconds from its start."""

    clock: Clock
    """Of its expert group."""
    position: int
    """Of its replica in its expert group."""
    idle: Sequence[tuple[int, int]]
    """(from, to) in passes run before, without a response of its own."""
    leased_s: float | None = None
    """From when on the rank may train beside generation; None = never."""


def record_of(
    rank: int,
    step: int,
    story: RankStory,
    *,
    opened_s: float,
    generated_s: float,
    end_s: float,
    training: Sequence[tuple[float, float]],
) -> StepRecord:
    """Args:
    generated_s: when the last group had generated.
    end_s: when the step ended.
    training: (from, to) in which leased ranks trained beside generation.
    """
    left = story.clock.left(story.position)
    intervals = list(_rollout(story, story.clock.end if left is None else left))
    cursor = intervals[-1].end_s if intervals else 0.0
    stage = ROLLOUT if left is not None else JOIN
    leased = float("inf") if story.leased_s is None else story.leased_s
    for start, stop in training:
        start = max(start, leased, cursor)
        if start < stop:
            intervals += _wait(cursor, start, stage)
            intervals.append(Interval(start_s=start, end_s=stop, state=State.TRAINING, stage=EARLY_UPDATE))
            cursor = stop
    intervals += _wait(cursor, generated_s, stage)
    if generated_s < end_s:
        intervals.append(Interval(start_s=generated_s, end_s=end_s, state=State.TRAINING, stage=UPDATE))
    return StepRecord(
        rank=rank, step=step, opened_s=opened_s, seconds=end_s, intervals=tuple(intervals), released_s=left
    )


def _wait(start: float, end: float, stage: str) -> list[Interval]:
    return [Interval(start_s=start, end_s=end, state=State.WAITING, stage=stage)] if start < end else []


def _rollout(story: RankStory, end: float) -> Iterator[Interval]:
    """Generating with its idle parts, and the shrinks that the rank took part in."""
    spans = [each for each in story.clock.shrinks if each.end_s <= end]
    cursor = 0.0
    for each in spans:
        yield from _generating(cursor, each.start_s, story)
        yield Interval(start_s=each.start_s, end_s=each.end_s, state=State.SHRINKING, stage=ROLLOUT)
        cursor = each.end_s
    yield from _generating(cursor, end, story)


def _generating(start: float, end: float, story: RankStory) -> Iterator[Interval]:
    ends, cursor = story.clock.ends, start
    for first, last in story.idle:
        idle_from, idle_to = max(float(ends[first]), cursor), min(float(ends[last]), end)
        if idle_from < idle_to:
            yield Interval(
                start_s=cursor,
                end_s=idle_to,
                state=State.GENERATING,
                stage=ROLLOUT,
                idle_from_s=idle_from,
            )
            cursor = idle_to
    if cursor < end:
        yield Interval(start_s=cursor, end_s=end, state=State.GENERATING, stage=ROLLOUT)
