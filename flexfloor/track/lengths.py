"""Response lengths on disk: `lengths.jsonl`, one line for the rollout of each training step.

A line holds columns, one entry a response, and beside the lengths that came what was predicted before.

Invariants:
- what is read equals what was written;
- the columns of a step are equally long, and predictions stand for all of its responses or for none;
- a resumed run's file holds each step once (see `jsonl`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from flexfloor.errors import FlexFloorError
from flexfloor.track.jsonl import StepLog, each_step

LENGTHS_FILE = "lengths.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLengths:
    """Lengths of the responses of one step in columns, an entry for each response."""

    uid: list[str]
    """Of the response's prompt."""
    response_index: list[int]
    """Which of the prompt's responses, from 0."""
    num_tokens: list[int]
    """Tokens of the response, at least 1."""
    truncated: list[bool]
    """Whether the response ended because it had all the tokens that it may have."""
    predicted_p10: list[float] | None = None
    """Quantiles of the predicted length in tokens; None = no prediction was made in this step."""
    predicted_p50: list[float] | None = None
    predicted_p90: list[float] | None = None

    def __post_init__(self) -> None:
        columns = {field.name: getattr(self, field.name) for field in fields(self)}
        told = {name: len(column) for name, column in columns.items() if column is not None}
        assert len(set(told.values())) == 1, f"columns are not equally long: {told}"
        assert min(self.num_tokens, default=1) >= 1, f"a response of {min(self.num_tokens)} tokens"
        assert len(told) in (4, 7), f"some quantiles are predicted and others are not: {sorted(told)}"
        if self.predicted_p10 is None or self.predicted_p50 is None or self.predicted_p90 is None:
            return
        for low, middle, high in zip(self.predicted_p10, self.predicted_p50, self.predicted_p90, strict=True):
            assert 0 < low <= middle <= high, f"quantiles out of order: {low}, {middle}, {high}"

    @property
    def num_responses(self) -> int:
        """Responses of the step."""
        return len(self.uid)


class LengthLog:
    """Appends the lengths of each step to a file; rank 0 holds it.

    Args:
        path: the file, by custom `lengths.jsonl` in the run folder.
        first_step: first step that this run will write; what is there from it on is set aside.

    Raises:
        FlexFloorError: the file cannot be read or written.
    """

    def __init__(self, path: Path, first_step: int = 0) -> None:
        self._log = StepLog(path, first_step)

    def write(self, step: int, lengths: StepLengths) -> None:
        """Write the lengths of one step.

        Raises:
            FlexFloorError: the file cannot be written (disk full).
        """
        columns = {field.name: getattr(lengths, field.name) for field in fields(lengths)}
        told = {name: column for name, column in columns.items() if column is not None}
        self._log.write({"step": step, **told})

    def close(self) -> None:
        """Close the file."""
        self._log.close()


def read_lengths(path: Path) -> dict[int, StepLengths]:
    """The lengths by step, in order of steps; empty when there is no file.

    Raises:
        FlexFloorError: a line is broken, or does not hold the columns of a step's lengths.
    """
    return dict(each_lengths(path))


def each_lengths(path: Path) -> Iterator[tuple[int, StepLengths]]:
    """The same step by step: all lengths of a long run may be more than one wants to hold."""
    for columns in each_step(path):
        step = columns.pop("step")
        yield step, _from_json(path, step, columns)


def _from_json(path: Path, step: int, columns: Mapping[str, Any]) -> StepLengths:
    try:
        return StepLengths(**columns)
    except (TypeError, AssertionError) as error:
        raise FlexFloorError(f"{path}, step {step}: no columns of response lengths: {error}") from error
