"""Samples to look at: a prompt, what the model answered, what was right, and the score."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRow:
    """One row of the sample table."""

    uid: str
    """The prompt's uid."""
    prompt: str
    """As the model saw it."""
    response: str
    ground_truth: str
    score: float

    def as_dict(self) -> dict[str, Any]:
        """Column names and values, in the order of the fields."""
        return {column: getattr(self, column) for column in SAMPLE_COLUMNS}


SAMPLE_COLUMNS = tuple(field.name for field in fields(SampleRow))


def printable(text: str) -> str:
    """The text on one line, with everything that would move a terminal's cursor written as an escape."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
