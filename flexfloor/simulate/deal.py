"""Which rank of a cluster generates what, and in which order.

Invariants:
- Every response is dealt exactly once.
"""

from __future__ import annotations

import numpy as np

from flexfloor.schedule.forecast import Wanted
from flexfloor.schedule.static import deal_in_order
from flexfloor.simulate.lengths import StepLengths


def in_order(lengths: StepLengths, num_ranks: int) -> list[list[int]]:
    """Whole prompts in the order of the data."""
    first = np.searchsorted(lengths.prompt, np.arange(len(lengths.uids) + 1))
    prompts = deal_in_order(len(lengths.uids), num_ranks)
    return [list(range(first[dealt.start], first[dealt.stop])) for dealt in prompts]


def longest_first(queues: list[list[int]], wanted: Wanted) -> list[list[int]]:
    """The same queues, each in the order of what its responses' prompts are likely to take."""
    expected = wanted.lengths.mean(axis=1).tolist()
    n = wanted.num_responses
    return [sorted(queue, key=lambda response: -expected[response // n]) for queue in queues]
