"""The passes of a group, one entry a pass, written many at a time.

Invariants:
- Entry q is the load of pass q, on the rank that has most of each.
"""

from __future__ import annotations

import numpy as np

from flexfloor.simulate.roofline import GroupLoad

FIELDS = ("ranks", "rows", "joining", "context", "total")


class PassLog:
    """Grows as it is written."""

    def __init__(self) -> None:
        self.count = 0
        self._columns = {name: np.zeros(1024, dtype=np.int64) for name in FIELDS}

    def write(
        self, passes: int, *, ranks: int, rows: int, joining: int, total: int, context: int | np.ndarray
    ) -> None:
        """The next `passes` passes, alike but for their `context`, one number or [passes]."""
        start, end = self.count, self.count + passes
        if end > len(self._columns["rows"]):
            more = max(end, 2 * start)
            self._columns = {name: np.resize(old, more) for name, old in self._columns.items()}
        columns = self._columns
        columns["ranks"][start:end] = ranks
        columns["rows"][start:end] = rows
        columns["joining"][start:end] = joining
        columns["total"][start:end] = total
        columns["context"][start:end] = context
        self.count = end

    @property
    def rank_passes(self) -> int:
        """Passes, summed over active ranks."""
        return int(self._columns["ranks"][: self.count].sum())

    def load(self) -> GroupLoad:
        """Of all passes, as arrays [passes]."""
        return GroupLoad(
            **{name: column[: self.count].astype(float) for name, column in self._columns.items()}
        )
