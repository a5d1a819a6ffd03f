"""A file of JSON lines, each of one step, that a stopped and resumed run continues.

Lines are strict JSON (NaN and infinities are refused) and are flushed one by one, so a killed run
loses at most the line it was writing. A run that goes on from step k drops what is there of step k
and later, so that no step stands in the file twice; what it drops is kept beside the file.

Invariants:
- after `StepLog(path, first_step=k)` every line is whole and of a step before k;
- a line that was cut off at the end of the file is no error; a broken one elsewhere is;
- nothing is deleted: dropped lines are appended to `<name>.dropped`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from flexfloor.errors import FlexFloorError

FOLDER_FIELD = "trainer.default_local_dir"
"""The setting that says where these files lie."""


class StepLog:
    """Appends JSON objects that have an integer "step" to a file.

    Args:
        path: the file; its folder is made.
        first_step: first step that this run will write; what is there from it on is set aside.

    Raises:
        FlexFloorError: the file cannot be read or written.
    """

    def __init__(self, path: Path, first_step: int = 0) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _drop_from(path, first_step)
            self._file = path.open("a", encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise FlexFloorError(f"{FOLDER_FIELD}: cannot write {path}: {error}") from error

    def write(self, record: Mapping[str, Any]) -> None:
        """Append one record and flush it.

        Raises:
            ValueError: the record holds NaN, an infinity, or something JSON has no word for.
            FlexFloorError: the file cannot be written (disk full).
        """
        assert isinstance(record["step"], int), f"step {record['step']!r} is no whole number"
        line = json.dumps(record, allow_nan=False, ensure_ascii=False)
        try:
            self._file.write(line + "\n")
            self._file.flush()
        except OSError as error:
            raise FlexFloorError(f"{FOLDER_FIELD}: cannot write {self.path}: {error}") from error

    def close(self) -> None:
        """Close the file; no record can be written after it."""
        self._file.close()


def read_steps(path: Path) -> list[dict[str, Any]]:
    """All whole records of the file in order; none when there is no file.

    Raises:
        FlexFloorError: a line before the last is no JSON object with a step.
    """
    return list(each_step(path))


def each_step(path: Path) -> Iterator[dict[str, Any]]:
    """The same one by one, for a file that is larger than what is wanted of it."""
    if not path.exists():
        return
    with path.open(encoding="utf-8", errors="replace", newline="\n") as file:
        for number, line in enumerate(file, start=1):
            record = _record_of(line)
            if record is not None:
                yield record
            elif line.endswith("\n") and line != "\n":
                raise _broken(path, number)


def _whole_lines(path: Path) -> list[str]:
    """The file's lines without a last one that was cut off while it was written."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    cut = lines.pop()
    whole = [line for line in lines if line]
    for number, line in enumerate(lines, start=1):
        if line and _step_of(line) is None:
            raise _broken(path, number)
    return [*whole, cut] if cut and _step_of(cut) is not None else whole


def _broken(path: Path, number: int) -> FlexFloorError:
    return FlexFloorError(f"{path}, line {number}: no JSON object with a whole number 'step'")


def _step_of(line: str) -> int | None:
    record = _record_of(line)
    return None if record is None else record["step"]


def _record_of(line: str) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) and isinstance(record.get("step"), int) else None


def _drop_from(path: Path, first_step: int) -> None:
    """Set aside the lines of `first_step` and later, and a cut-off last line, in one atomic replacement."""
    if not path.exists():
        return
    lines = _whole_lines(path)
    kept = [line for line in lines if _is_before(line, first_step)]
    dropped = [line for line in lines if not _is_before(line, first_step)]
    if dropped:
        with path.with_name(path.name + ".dropped").open("a", encoding="utf-8") as aside:
            aside.writelines(line + "\n" for line in dropped)
    partial = path.with_name(path.name + ".partial")
    partial.write_text("".join(line + "\n" for line in kept), encoding="utf-8")
    os.replace(partial, path)


def _is_before(line: str, step: int) -> bool:
    found = _step_of(line)
    return found is not None and found < step
