"""Which samples a lease trains next: as many as make one micro-batch on each of its replicas.

Invariants:
- A round has one micro-batch a replica at most, so that a lease is never longer in one than it takes.
- The longest go first: what is left for the join can be dealt finely.
"""

from __future__ import annotations

from collections.abc import Sequence

from flexfloor.train.packing import plan_micro_batches
from flexfloor.train.types import Sample


def next_round(waiting: Sequence[Sample], *, num_replicas: int, max_tokens: int) -> list[Sample]:
    """Samples of `waiting` for one round; none only where none has a row to train.

    Args:
        num_replicas: of the lease.
        max_tokens: rows of one micro-batch, unless a single sample has more.
    """
    longest_first = sorted(
        (sample for sample in waiting if sample.num_rows),
        key=lambda sample: (-sample.num_rows, sample.uid, sample.response_index),
    )
    rows = [sample.num_rows for sample in longest_first]
    count, total = min(1, len(rows)), sum(rows[:1])
    while count < len(rows) and total + rows[count] <= num_replicas * max_tokens:
        total += rows[count]
        count += 1
    while count > 1 and len(plan_micro_batches(rows[:count], num_replicas, max_tokens)[0]) > 1:
        count -= 1
    return longest_first[:count]
