"""Rows of generated tasks: a mixture of reasoning-gym generators, each with its own options.

A row goes to the task that is furthest behind its weight, so every stretch of rows has the mixture's
shares. Validation leaves out questions that training or an earlier validation row has.

Invariants:
- The first rows are the same for every number of rows asked for.
- No validation question occurs in training, and none occurs twice in validation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from flexfloor.data.config import DataConfig
from flexfloor.data.task_registry import create_task, generate_entry
from flexfloor.data.types import Row
from flexfloor.errors import DataError

SOURCE_PREFIX = "reasoning_gym/"
CHUNK_ENTRIES = 256
"""entries of one generator; the next ones come from a new generator with a seed of its own"""
MAX_TRIES = 1000
"""known questions that a task may give in succession before it counts as exhausted"""


def generate_rows(cfg: DataConfig, split: str) -> list[Row]:
    """`cfg.train_size` or `cfg.val_size` rows of the mixture `cfg.tasks`.

    Raises:
        ConfigError: a task or an option is unknown, or the options do not fit.
        DataError: a task has not enough questions that training does not have.
    """
    if split == "train":
        return _mix(cfg, split, cfg.train_size)
    if cfg.val_size == 0:
        return []
    trained = {_question(row) for row in _mix(cfg, "train", cfg.train_size)}
    return _mix(cfg, split, cfg.val_size, known=trained)


def _mix(cfg: DataConfig, split: str, num_rows: int, known: set[str] | None = None) -> list[Row]:
    """`num_rows` rows; with `known` given, only questions that are not in it, each once."""
    streams = [_Stream(cfg, split, part) for part in range(len(cfg.tasks))]
    rows: list[Row] = []
    while len(rows) < num_rows:
        stream = max(streams, key=lambda s: s.share * (len(rows) + 1) - s.num_given)
        row = _next_row(stream, known)
        rows.append(row)
        if known is not None:
            known.add(_question(row))
    return rows


def _next_row(stream: _Stream, known: set[str] | None) -> Row:
    for _ in range(MAX_TRIES):
        row = stream.draw()
        if known is None or _question(row) not in known:
            stream.num_given += 1
            return row
    raise DataError(
        f"data.val_size: task {stream.task.name} has too few questions that training does not have "
        f"({stream.num_given} found); lower data.val_size or data.train_size, or widen the task's options"
    )


class _Stream:
    """The endless entries of one part of the mixture.

    Some generators make all their entries at once, and let them depend on how many there are; so the
    stream is cut into generators of a fixed size.
    """

    def __init__(self, cfg: DataConfig, split: str, part: int):
        self.task = cfg.tasks[part]
        self.share = self.task.weight / sum(task.weight for task in cfg.tasks)
        self.num_given = 0
        self._split = split
        self._name = f"{self.task.name}/{split}/{cfg.task_seed}.{part}"
        self._num_drawn = 0
        self._dataset: Any = None

    def draw(self) -> Row:
        """The next entry as a row."""
        index = self._num_drawn
        chunk, position = divmod(index, CHUNK_ENTRIES)
        if position == 0:
            self._dataset = create_task(self.task, seed=_seed(f"{self._name}/{chunk}"), size=CHUNK_ENTRIES)
        self._num_drawn += 1
        return self._row(index, generate_entry(self._dataset, self.task, position))

    def _row(self, index: int, entry: Mapping[str, Any]) -> Row:
        uid = f"{self._name}/{index}"
        return Row(
            where=uid,
            data_source=SOURCE_PREFIX + self.task.name,
            messages=({"role": "user", "content": entry["question"]},),
            ground_truth=entry["answer"],
            extra_info={
                "uid": uid,
                "split": self._split,
                "index": index,
                "question": entry["question"],
                "metadata": entry["metadata"],
                "task_options": dict(self.task.config),
            },
        )


def _question(row: Row) -> str:
    return row.messages[-1]["content"]


def _seed(name: str) -> int:
    """A seed that lies far from others: reasoning-gym adds the entry's index to it."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest()) % 2**31
