"""The lengths of a real run, from the `lengths.jsonl` in its folder: one line a step.

Invariants:
- A step's responses come in the order of its prompts' first mention, each once.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from flexfloor.checks import require
from flexfloor.errors import DataError
from flexfloor.simulate.lengths import StepLengths

FIELDS = ("uid", "response_index", "num_tokens", "truncated")
"""Lists of one length in each line."""


class RecordedLengths:
    """Steps of a run, taken for epochs in their order."""

    def __init__(self, path: Path, cap: int | None = None):
        """Args:
        path: `lengths.jsonl`, or the folder of a run that has one.
        cap: tokens that a response may have; not given = what the longest had.

        Raises:
            ConfigError: there is no such file.
            DataError: a line is not what it must be, with file, line and what is wrong.
        """
        file = path / "lengths.jsonl" if path.is_dir() else path
        require(file.is_file(), "simulate.lengths.path", str(path), "a run's folder or its lengths.jsonl")
        with file.open(encoding="utf-8") as lines:
            self.steps = [_step(f"{file}:{number}", line) for number, line in enumerate(lines, 1)]
        if not self.steps:
            raise DataError(f"{file}: there is no step in it")
        longest = max(int(step.tokens.max()) for step in self.steps)
        self.cap = longest if cap is None else cap
        if longest > self.cap:
            raise DataError(f"{file}: a response has {longest} tokens, and only {self.cap} are allowed")

    def step(self, epoch: int) -> StepLengths:
        """The responses of a step of the run, counted from 0."""
        return self.steps[epoch]


def _step(place: str, line: str) -> StepLengths:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise DataError(f"{place}: not JSON: {error}") from None
    _check(place, row)
    number = {uid: index for index, uid in enumerate(dict.fromkeys(row["uid"]))}
    prompt = np.array([number[uid] for uid in row["uid"]])
    order = np.lexsort((row["response_index"], prompt))
    return StepLengths(
        uids=tuple(number),
        prompt=prompt[order],
        tokens=np.array(row["num_tokens"], dtype=np.int64)[order],
        truncated=np.array(row["truncated"], dtype=bool)[order],
    )


def _check(place: str, row: Any) -> None:
    if not isinstance(row, dict):
        raise DataError(f"{place}: must be an object with {', '.join(FIELDS)}")
    for name in FIELDS:
        if not isinstance(row.get(name), list):
            raise DataError(f"{place}: {name} must be a list")
    count = len(row["uid"])
    if not count or any(len(row[name]) != count for name in FIELDS):
        raise DataError(f"{place}: {', '.join(FIELDS)} must have one entry for each response, and not none")
    if not all(type(tokens) is int and tokens >= 1 for tokens in row["num_tokens"]):
        raise DataError(f"{place}: num_tokens must be whole numbers of at least 1")
    if len(set(zip(row["uid"], row["response_index"], strict=True))) < count:
        raise DataError(f"{place}: a response stands there twice")
