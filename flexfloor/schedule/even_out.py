"""Unfinished responses that ranks give to each other before they part, after which nothing can move any more.

They part the sooner the evener they are: memory is counted for the rank that has most, and the last of them
ends the rollout.

Invariants:
- Afterwards the numbers of any two ranks differ by at most one.
- No rank both gives and takes, and no way to even numbers moves fewer.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flexfloor.schedule.shrink import Handover, Standing


def evened(standings: Sequence[Standing]) -> list[int]:
    """Responses that each rank has afterwards: those with the most keep one more where it does not divide."""
    level, more = divmod(sum(each.unfinished for each in standings), len(standings))
    by_number = sorted(range(len(standings)), key=lambda rank: (-standings[rank].unfinished, rank))
    kept = set(by_number[:more])
    return [level + (rank in kept) for rank in range(len(standings))]


def even_out(standings: Sequence[Standing]) -> list[Handover]:
    """Who gives how many of its last to whom."""
    wanted = evened(standings)
    over = [each.unfinished - own for each, own in zip(standings, wanted, strict=True)]
    takers = [rank for rank, more in enumerate(over) for _ in range(-more)]
    givers = [rank for rank, more in enumerate(over) for _ in range(more)]
    pairs = list(zip(givers, takers, strict=True))
    return [
        Handover(source=source, target=target, count=pairs.count((source, target)))
        for source, target in dict.fromkeys(pairs)
    ]


def evened_out(alive: np.ndarray, standings: Sequence[Standing]) -> np.ndarray:
    """[R, H] what ranks are likely to have unfinished afterwards, of `alive` [R, H] now.

    What is given is taken to be like the rest of the giver's.
    """
    found = alive.copy()
    for each in even_out(standings):
        given = alive[each.source] * (each.count / standings[each.source].unfinished)
        found[each.source] -= given
        found[each.target] += given
    return found
