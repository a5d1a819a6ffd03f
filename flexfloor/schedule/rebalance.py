"""Queued responses from replicas that have many to replicas that have none and room: the same on every rank.

Invariants:
- Only responses that wait are taken, and never more than a donor has.
- A replica that receives had none waiting, and has room for what it gets as far as is known.
- What is left to wait is not less even than before.
"""

from __future__ import annotations

from collections.abc import Sequence

from flexfloor.schedule.shrink import Handover, Standing


def rebalance(standings: Sequence[Standing], *, sequences: int, kv_tokens: int) -> list[Handover]:
    """Who gives how many of the responses at the head of its queue to whom.

    Args:
        standings: of the active ranks, by position.
        sequences: that a rank may generate at a time.
        kv_tokens: room of a rank's cache.
    """
    waiting = [standing.waiting for standing in standings]
    each = _tokens_of_one(standings)
    free = [
        0
        if standing.waiting
        else min(sequences - standing.unfinished, int((kv_tokens - standing.kv_tokens) / each))
        for standing in standings
    ]
    given: dict[tuple[int, int], int] = {}
    while True:
        source = max(range(len(waiting)), key=lambda position: (waiting[position], -position))
        target = max(range(len(free)), key=lambda position: (free[position], -position))
        if not waiting[source] or free[target] <= 0:
            break
        waiting[source] -= 1
        free[target] -= 1
        given[source, target] = given.get((source, target), 0) + 1
    return [
        Handover(source=source, target=target, count=count)
        for (source, target), count in sorted(given.items())
    ]


def _tokens_of_one(standings: Sequence[Standing]) -> float:
    """Room that a response which waits is likely to take at once, and as much again to grow."""
    waiting = sum(standing.waiting for standing in standings)
    return max(1.0, 2 * sum(standing.waiting_tokens for standing in standings) / max(1, waiting))
