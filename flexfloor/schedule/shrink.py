"""Whether an expert group shrinks, to which rung, and who takes over what: the same answer on every rank.

Ranks are meant by their position in the group. The highest positions leave first, so that the active
ranks are always a prefix.

Invariants:
- A rung is taken only if its ranks can hold every unfinished response, by number and by cache.
- Every unfinished response of a leaver goes to exactly one stayer.
- Stayers end with numbers that differ by at most one, unless one had more to begin with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What one active rank says of itself."""

    unfinished: int
    """Responses that are live or wait."""
    kv_tokens: int
    """Tokens of the slots that they would fill in the coming pass."""
    finished: int
    """Responses that ended on this rank in this rollout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """Unfinished responses that go from a leaver to a stayer."""

    source: int
    target: int
    count: int


def lowest_rung(
    standings: Sequence[Standing], rungs: Sequence[int], *, sequences_per_rank: int, kv_tokens_per_rank: int
) -> int:
    """The smallest rung that can hold all that is unfinished; as many as are active if none can.

    Args:
        standings: of the active ranks, by position.
        rungs: sizes that may be taken.
        sequences_per_rank: unfinished responses that a rank may get.
        kv_tokens_per_rank: room of a rank's cache.
    """
    unfinished = sum(standing.unfinished for standing in standings)
    kv_tokens = sum(standing.kv_tokens for standing in standings)
    for rung in sorted(rung for rung in rungs if rung < len(standings)):
        if unfinished <= rung * sequences_per_rank and kv_tokens <= rung * kv_tokens_per_rank:
            return rung
    return len(standings)


def hand_over(standings: Sequence[Standing], rung: int) -> list[Handover]:
    """Who takes the unfinished responses of the positions from `rung` on: always whoever has fewest."""
    held = [standing.unfinished for standing in standings[:rung]]
    handovers = []
    for source in range(rung, len(standings)):
        given = [0] * rung
        for _ in range(standings[source].unfinished):
            target = min(range(rung), key=lambda position: (held[position], position))
            held[target] += 1
            given[target] += 1
        handovers += [
            Handover(source=source, target=target, count=count) for target, count in enumerate(given) if count
        ]
    return handovers
