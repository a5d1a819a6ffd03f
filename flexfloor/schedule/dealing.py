"""Queues that are split among ranks, and queues that become one: order kept, and length spread evenly.

A schedule puts the longest first. Whoever got the head of a leaver's queue would get the longest of it, and
whoever appended a queue to its own would begin with its longest last.

Invariants:
- Every item is dealt once, and merged queues hold every item once.
- Items of one queue keep their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def dealt(items: Sequence[T], counts: Sequence[int]) -> list[list[T]]:
    """As many items for each as `counts` says: one each in turn, every other round backwards.

    Args:
        counts: their sum is the number of items.
    """
    assert sum(counts) == len(items), (counts, len(items))
    hands: list[list[T]] = [[] for _ in counts]
    order, rest = list(range(len(counts))), iter(items)
    while any(len(hand) < count for hand, count in zip(hands, counts, strict=True)):
        for index in order:
            if len(hands[index]) < counts[index]:
                hands[index].append(next(rest))
        order.reverse()
    return hands


def merged(queues: Sequence[Sequence[T]]) -> list[T]:
    """One queue in which each item stands as far from the head, relatively, as in its own."""
    places = [
        ((2 * index + 1) / len(queue), number, index)
        for number, queue in enumerate(queues)
        for index in range(len(queue))
    ]
    return [queues[number][index] for _, number, index in sorted(places)]
