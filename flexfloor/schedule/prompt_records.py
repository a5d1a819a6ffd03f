"""What is kept of each prompt's responses, in one array row a prompt, for a bounded number of prompts.

Invariants:
- There are never more than `limit` prompts; the least recently seen goes first.
- The order of the prompts is that in which they were last seen, before and after a round trip.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from itertools import islice

import numpy as np

RECORD = np.dtype(
    [
        ("count", "f8"),  # responses that ended by themselves; older ones count less
        ("fresh", "f8"),  # those of them that came at the last visit
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


def older_part(records: np.ndarray) -> np.ndarray:
    """Part of `log_mean` that comes from before the last visit."""
    return 1.0 - records["fresh"] / np.maximum(np.maximum(records["count"], records["fresh"]), 1e-9)


class PromptRecords:
    """Records by uid, of at most `limit` prompts."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rows: OrderedDict[str, int] = OrderedDict()  # a dict would search for its first key
        self._table = np.zeros(0, dtype=RECORD)

    def __len__(self) -> int:
        return len(self._rows)

    def uids(self) -> list[str]:
        """Uids of all prompts, the least recently seen first."""
        return list(self._rows)

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
        rows = np.asarray([self._rows.get(uid, -1) for uid in uids], dtype=np.int64)
        known = np.flatnonzero(rows >= 0)
        return known, self._table[rows[known]]

    def latest(self, number: int) -> np.ndarray:
        """Records of the prompts seen last, at most `number`, the least recently seen first."""
        rows = np.fromiter(islice(reversed(self._rows.values()), number), dtype=np.int64)
        return self._table[rows[::-1]]

    def fill(self, uids: Sequence[str], records: np.ndarray) -> None:
        """Hold these prompts and no others, the least recently seen first; of too many, the last ones."""
        skipped = max(0, len(uids) - self._limit)
        self._rows = OrderedDict((uid, row) for row, uid in enumerate(uids[skipped:]))
        self._table = records[skipped:].copy()

    def shift(self, step: int, by: float) -> None:
        """Raise the level at which the prompts of `step` were seen; what they held before rises with it."""
        seen = self._table["step"] == step
        self._table["level"][seen] += by
        self._table["log_mean"][seen] += by * older_part(self._table[seen])

    def _free_row(self) -> int:
        if len(self._rows) == self._limit:
            return self._rows.popitem(last=False)[1]
        if len(self._rows) == len(self._table):
            larger = min(self._limit, max(256, 2 * len(self._table)))
            more = np.zeros(larger - len(self._table), dtype=RECORD)
            self._table = np.concatenate([self._table, more])
        return len(self._rows)
