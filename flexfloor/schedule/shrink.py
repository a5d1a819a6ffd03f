"""Whether an expert group shrinks, to which rung, and who takes over what; and whether it detaches.

Ranks are meant by their position in the group. The highest positions leave first, so that the active
ranks are always a prefix.

Invariants:
- Every rank gives the same answer, from the same numbers.
- `greedy` takes a rung only if its ranks can hold every unfinished response, by number and by cache.
- `idle` moves nothing: only ranks without unfinished responses leave.
- Every unfinished response of a leaver goes to exactly one stayer.
- Stayers end with numbers that differ by at most one, unless one had more to begin with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import TypeVar

from flexfloor.schedule.dealing import dealt

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What one active rank says of itself."""

    unfinished: int
    """Responses that are live or wait."""
    kv_tokens: int
    """Tokens of the slots that they would fill in the coming pass."""
    finished: int
    """Responses that ended on this rank in this rollout."""
    waiting_tokens: int = 0
    """Of those that wait: rows of the pass that they would join at once."""
    waiting: int = 0
    """Responses that wait."""
    deviation: int = 0
    """Standard deviation of the tokens that all of its responses together are likely to get yet; for the
    guided decision only."""
    alive: tuple[int, ...] = ()
    """Expected number of its responses that are unfinished after each horizon, in 1/256; for the guided
    decision only."""

    @property
    def live(self) -> int:
        """Responses that take part in the coming pass."""
        return self.unfinished - self.waiting

    @property
    def live_tokens(self) -> int:
        """Tokens of their slots. Slots of what waits are taken to be as large as its tokens, so that this is
        a little too much where something waits."""
        return max(0, self.kv_tokens - self.waiting_tokens)

    def integers(self) -> list[int]:
        """As it is told."""
        counts = [self.unfinished, self.kv_tokens, self.finished, self.waiting_tokens, self.waiting]
        return [*counts, self.deviation, *self.alive]

    @classmethod
    def of(cls, integers: Sequence[int]) -> Standing:
        """What was told."""
        unfinished, kv_tokens, finished, waiting_tokens, waiting, deviation, *alive = integers
        return cls(
            unfinished=unfinished,
            kv_tokens=kv_tokens,
            finished=finished,
            waiting_tokens=waiting_tokens,
            waiting=waiting,
            deviation=deviation,
            alive=tuple(alive),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What a group does at a decision."""

    size: int
    """Ranks that go on; the present number = all stay."""
    parts: bool = False
    """Whether they go on each by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """Unfinished responses that go from a leaver to a stayer."""

    source: int
    target: int
    count: int


def next_size(
    standings: Sequence[Standing],
    rungs: Sequence[int],
    *,
    policy: str,
    sequences_per_rank: int,
    kv_tokens_per_rank: int,
) -> int:
    """Ranks to go on with: the smallest rung that will do, else as many as are active.

    Args:
        standings: of the active ranks, by position.
        rungs: sizes that may be taken.
        policy: `never`; `idle`, where a rank leaves once it and those above it have nothing left; `greedy`,
            where a rung will do if it can hold all that is unfinished.
        sequences_per_rank: unfinished responses that `greedy` may give a rank.
        kv_tokens_per_rank: room of a rank's cache.
    """
    needed = len(standings)
    if policy == "idle":
        busy = [position for position, standing in enumerate(standings) if standing.unfinished]
        needed = max(busy, default=0) + 1
    elif policy == "greedy":
        unfinished = sum(standing.unfinished for standing in standings)
        kv_tokens = sum(standing.kv_tokens for standing in standings)
        needed = max(1, ceil(unfinished / sequences_per_rank), ceil(kv_tokens / kv_tokens_per_rank))
    return min((rung for rung in rungs if needed <= rung < len(standings)), default=len(standings))


def detaches(standings: Sequence[Standing], *, hostable: int, num_experts: int) -> bool:
    """Whether the active ranks part, each to generate by itself what it has: if all can host all experts.

    Args:
        standings: of the active ranks, by position.
        hostable: experts that a rank can host beside what it has to generate.
    """
    is_more_than_one = len(standings) > 1 and any(standing.unfinished for standing in standings)
    return is_more_than_one and hostable >= num_experts


def hand_over(standings: Sequence[Standing], rung: int) -> list[Handover]:
    """Who takes the unfinished responses of the positions from `rung` on: always whoever has fewest."""
    held = [standing.unfinished for standing in standings[:rung]]
    handovers = []
    for source in range(rung, len(standings)):
        given = _to_the_fewest(held, standings[source].unfinished)
        held = [own + more for own, more in zip(held, given, strict=True)]
        handovers += [
            Handover(source=source, target=target, count=count) for target, count in enumerate(given) if count
        ]
    return handovers


def hands(handovers: Sequence[Handover], source: int, items: Sequence[T]) -> list[tuple[int, list[T]]]:
    """(target, what it gets) of the `items` that `source` hands over, in their order, drawn in turn."""
    mine = [each for each in handovers if each.source == source]
    drawn = dealt(items, [each.count for each in mine])
    return [(each.target, hand) for each, hand in zip(mine, drawn, strict=True)]


def taken_over(standings: Sequence[Standing], rung: int) -> list[int]:
    """Responses that each of the first `rung` positions gets in all, by `hand_over`."""
    leaving = sum(standing.unfinished for standing in standings[rung:])
    return _to_the_fewest([standing.unfinished for standing in standings[:rung]], leaving)


def _to_the_fewest(held: Sequence[int], count: int) -> list[int]:
    """How many of `count` each gets if one by one they go to whoever has fewest, the lowest of equals."""
    order = sorted(held)
    raised, below = 1, order[0]
    while raised < len(order) and order[raised] * raised - below <= count:
        below += order[raised]
        raised += 1
    level, more = divmod(count + below, raised)
    given = []
    for own in held:
        given.append(max(0, level - own) + (more > 0 and own <= level))
        more -= own <= level
    return given
