"""Leases of a step, on all ranks: who trained on ranks that were released, and that everybody says the same.

Invariants:
- `check_leases` passes exactly when each rank trains or waits within its leases, holds one at a time, and
  each lease is noted by all of its ranks and by no other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from flexfloor.ledger.balance import TOLERANCE_SECONDS
from flexfloor.ledger.types import LEASED_STATES, Lease, StepRecord


def check_leases(records: Sequence[StepRecord]) -> None:
    """Check the leases of one step.

    Args:
        records: settled, of all ranks in rank order.

    Raises:
        AssertionError: naming rank, step and the lease that is wrong.
    """
    for record in records:
        place = f"rank {record.rank}, step {record.step}"
        for lease in record.leases:
            _check_span(record, lease, place)
        for before, after in pairwise(record.leases):
            assert before.end_s <= after.start_s + TOLERANCE_SECONDS, (
                f"{place}: a lease to {after.owner} from {after.start_s:.6f} s, within one to {before.owner}"
            )
    _check_ranks(records)


def _check_span(record: StepRecord, lease: Lease, place: str) -> None:
    is_inside = lease.start_s >= 0.0 and lease.end_s <= record.seconds + TOLERANCE_SECONDS
    assert is_inside, f"{place}: a lease to {lease.owner} until {lease.end_s:.6f} s, outside of the step"
    for each in record.intervals:
        overlap = min(each.end_s, lease.end_s) - max(each.start_s, lease.start_s)
        assert each.state in LEASED_STATES or overlap <= TOLERANCE_SECONDS, (
            f"{place}: {each.state} for {overlap:.6f} s of a lease to {lease.owner}"
        )


def _check_ranks(records: Sequence[StepRecord]) -> None:
    noted = [Counter((lease.owner, lease.ranks) for lease in record.leases) for record in records]
    for owner, ranks in sorted({key for each in noted for key in each}):
        times = {rank: each[owner, ranks] for rank, each in enumerate(noted) if each[owner, ranks]}
        is_shared = tuple(times) == ranks and len(set(times.values())) == 1
        assert is_shared, (
            f"step {records[0].step}: leases to {owner} of ranks {ranks}, noted by rank: {times}"
        )
