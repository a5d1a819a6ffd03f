"""Queued responses that go to a replica whose own queue is empty.

Invariants:
- Only a replica that has none gets any, and only one that keeps at least as many gives.
- All are where they were, or at exactly one other replica.
"""

from __future__ import annotations

from collections.abc import Sequence

from flexfloor.schedule.shrink import Handover


def take_over(waiting: Sequence[int], wanting: Sequence[bool]) -> list[Handover]:
    """Who takes how many from whom, each from the end of the longest queue there is.

    Args:
        waiting: responses in the queue of each active replica.
        wanting: which replicas could begin another one; one with a queue of its own gets none.
    """
    left = list(waiting)
    takers = [replica for replica, wants in enumerate(wanting) if wants and not waiting[replica]]
    level = max(1, sum(waiting) // max(1, len(waiting)))
    moved: dict[tuple[int, int], int] = {}
    for _ in range(level):
        for taker in takers:
            giver = max(range(len(left)), key=lambda replica: (left[replica], -replica))
            if left[giver] > left[taker] and left[giver] - 1 >= left[taker]:
                left[giver] -= 1
                left[taker] += 1
                moved[giver, taker] = moved.get((giver, taker), 0) + 1
    return [Handover(source=source, target=target, count=count) for (source, target), count in moved.items()]
