"""Which rank of a cluster generates what, and in which order.

Invariants:
- Every response is dealt exactly once.
"""

from __future__ import annotations

import heapq

import numpy as np

from flexfloor.schedule.static import deal_in_order
from flexfloor.simulate.lengths import StepLengths


def in_order(lengths: StepLengths, num_ranks: int) -> list[list[int]]:
    """Whole prompts in the order of the data."""
    first = np.searchsorted(lengths.prompt, np.arange(len(lengths.uids) + 1))
    prompts = deal_in_order(len(lengths.uids), num_ranks)
    return [list(range(first[dealt.start], first[dealt.stop])) for dealt in prompts]


def longest_first(expected: np.ndarray, num_ranks: int) -> list[list[int]]:
    """The longest expected response to the rank that has the fewest tokens to generate, and so on.

    Args:
        expected: [B] tokens.
    """
    queues: list[list[int]] = [[] for _ in range(num_ranks)]
    heap = [(0.0, rank) for rank in range(num_ranks)]
    for response in np.argsort(-expected, kind="stable").tolist():
        tokens, rank = heapq.heappop(heap)
        queues[rank].append(response)
        heapq.heappush(heap, (tokens + float(expected[response]), rank))
    return queues
