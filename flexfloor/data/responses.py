"""Generated responses in a jsonl file.

It is what `flexfloor rollout` gives, and what is left of a run whose reward function fails.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flexfloor.errors import DataError


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedResponse:
    """One line of the file."""

    uid: str
    data_source: str
    response_index: int
    prompt: str
    """as rendered"""
    response: str
    finish_reason: str
    """`eos`, `stop` or `length`"""
    score: float | None
    """None while it is unknown"""
    ground_truth: Any


def write_responses(path: str | Path, responses: Iterable[SavedResponse]) -> None:
    """Write one JSON object a line to `path`; a file there is replaced only when all lines are written.

    Raises:
        DataError: naming the path, if it cannot be written.
    """
    path = Path(path)
    unfinished = path.with_name(path.name + ".partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(unfinished, "w", encoding="utf-8") as file:
            file.writelines(_line(response) for response in responses)
        os.replace(unfinished, path)
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror or error}") from error


def _line(response: SavedResponse) -> str:
    # ASCII escapes: a response may hold any character, also ones that some readers take for a line end
    return json.dumps(dataclasses.asdict(response), default=str) + "\n"
