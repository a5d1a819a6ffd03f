"""What is kept of each prompt's responses, in one array row a prompt, for a bounded number of prompts.

Invariants:
- There are never more than `limit` prompts; the least recently seen goes first.
- The order of the prompts is that in which they were last seen, before and after a round trip.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

import numpy as np

RECORD = np.dtype(
    [
        ("count", "f8"),  # responses that ended by themselves; older ones count less
        ("visits", "f8"),  # steps in which the prompt had responses; older ones count less
        ("log_mean", "f8"),  # of the log-lengths of `count`
        ("spread", "f8"),  # sum of their squares around the mean of their visit
        ("cut", "f8"),  # truncated responses; older ones count less
        ("log_limit", "f8"),  # log of the length at which they were cut
        ("level", "f8"),  # the history's level at the last visit
        ("step", "i8"),  # of the last visit
        ("change", "f8"),  # visit's mean less the one that was kept, at the last visit with both; else NaN
        ("change_visits", "f8"),  # 1 + 1 / visits that were kept, of that change
        ("change_noise", "f8"),  # 1 / responses on both sides, of that change
    ]
)
FIELDS = tuple(RECORD.fields or ())
"""Names of a record's numbers."""


class PromptRecords:
    """Records by uid, of at most `limit` prompts."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rows: dict[str, int] = {}
        self._table = np.zeros(min(limit, 256), dtype=RECORD)

    def __len__(self) -> int:
        return len(self._rows)

    def uids(self) -> list[str]:
        """Uids of all prompts, the least recently seen first."""
        return list(self._rows)

    def get(self, uid: str) -> np.void | None:
        """The record of `uid`, in place, or None."""
        row = self._rows.get(uid)
        return None if row is None else self._table[row]

    def touch(self, uid: str) -> np.void:
        """The record of `uid`, in place and now the most recently seen; an empty one where there was none."""
        row = self._rows.pop(uid, None)
        if row is None:
            row = self._free_row()
            self._table[row] = np.zeros((), dtype=RECORD)
            self._table[row]["step"] = -1
            self._table[row]["change"] = np.nan
        self._rows[uid] = row
        return self._table[row]

    def select(self, uids: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Positions in `uids` of the prompts that are known, and their records."""
        rows = [self._rows.get(uid, -1) for uid in uids]
        known = np.flatnonzero(np.asarray(rows, dtype=np.int64) >= 0)
        return known, self._table[np.asarray(rows, dtype=np.int64)[known]]

    def latest(self, number: int) -> np.ndarray:
        """Records of the prompts seen last, at most `number`, the least recently seen first."""
        rows = list(islice(reversed(self._rows.values()), number))
        return self._table[rows[::-1]]

    def add(self, uids: Iterable[str], records: np.ndarray) -> None:
        """Put in prompts with their records, the least recently seen first."""
        for uid, record in zip(uids, records, strict=True):
            self.touch(uid)
            self._table[self._rows[uid]] = record

    def shift(self, step: int, by: float) -> None:
        """Add `by` to the level of the prompts that were last seen in `step`."""
        for row in reversed(self._rows.values()):
            if self._table[row]["step"] != step:
                break
            self._table[row]["level"] += by

    def _free_row(self) -> int:
        if len(self._rows) == self._limit:
            return self._rows.pop(next(iter(self._rows)))
        if len(self._rows) == len(self._table):
            more = np.zeros(min(self._limit, 2 * len(self._table)) - len(self._table), dtype=RECORD)
            self._table = np.concatenate([self._table, more])
        return len(self._rows)
