"""How much of a run the page holds, and which entries of a longer series stay.

Invariants:
- what stays is evenly spread, with the first and the last entry among it;
- a series within its limit stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

MAX_FULL_RUNS = 150_000
"""Stretches of the time line that are kept as they were, in the newest steps."""
MAX_COARSE_RUNS = 250_000
"""Stretches of the time line of the steps before those."""
MAX_POINTS = 3_000
"""Responses in the comparison with what was predicted."""
MAX_STEPS = 1_000
"""Steps with lengths of their own, points of a curve, and rows of the table."""
MAX_BINS = 40
"""Bins of a histogram of lengths."""

Entry = TypeVar("Entry")


def spread_out(num_entries: int, limit: int) -> list[int]:
    """Indices of at most `limit` of `num_entries` entries, in order."""
    assert limit >= 2, f"{limit} entries hold no first and last"
    if num_entries <= limit:
        return list(range(num_entries))
    return [round(i * (num_entries - 1) / (limit - 1)) for i in range(limit)]


def thinned(entries: Sequence[Entry], limit: int) -> list[Entry]:
    """At most `limit` of the entries, in order."""
    return [entries[i] for i in spread_out(len(entries), limit)]
