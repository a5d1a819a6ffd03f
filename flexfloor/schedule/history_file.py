"""A length history as a parquet file, for other runs and for looking at.

One row a prompt, the least recently seen first; columns `uid` and those of `prompt_records.RECORD`, without
the steps of the run that wrote it.

Invariants:
- A history that was read predicts what the written one did.
- A file is there whole or not at all.
- What is not such a file is refused by the name of the setting, the file and what is wrong with it.
"""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from flexfloor.errors import DataError, FlexFloorError
from flexfloor.schedule.history import LengthHistory
from flexfloor.schedule.length_prior import fit_prior
from flexfloor.schedule.prompt_records import FIELDS, RECORD

SETTING = "schedule.history_path"
COLUMNS = tuple(name for name in FIELDS if name not in ("level", "step"))
NOT_NEGATIVE = ("count", "fresh", "visits", "spread", "cut", "change_visits", "change_noise")
LARGEST = 1e6
"""No number in a history is larger; logarithms of lengths are far smaller."""


def write_history(path: Path, history: LengthHistory) -> None:
    """Write `history` to `path`, in place of what is there.

    Raises:
        FlexFloorError: the file cannot be written.
    """
    import pyarrow
    import pyarrow.parquet

    uids, records = history.settled()
    columns = {"uid": pyarrow.array(uids, pyarrow.string())}
    columns |= {name: pyarrow.array(records[name]) for name in COLUMNS}
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        pyarrow.parquet.write_table(pyarrow.table(columns), beside)
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise FlexFloorError(f"{path}: the length history cannot be written: {error}") from error


def read_history(path: Path, max_response_length: int, max_prompts: int = 200_000) -> LengthHistory:
    """The history in `path`, as one of earlier steps.

    Raises:
        DataError: the file is missing, unreadable, or not a length history.
    """
    columns = _columns(path)
    records = np.zeros(len(columns["uid"]), dtype=RECORD)
    for name in COLUMNS:
        records[name] = _numbers(path, name, columns[name])
    records["step"] = -1
    uids = _uids(path, columns["uid"])
    state = {
        "uids": uids,
        "records": {name: records[name] for name in FIELDS},
        "level": 0.0,
        "step": -1,
        "general": asdict(fit_prior(records, max_response_length)),
    }
    return LengthHistory.from_state(state, max_response_length, max_prompts)


def _columns(path: Path) -> dict[str, Any]:
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.read_table(path)
        names, uids = (
            table.column_names,
            table.column("uid").to_pylist() if "uid" in table.column_names else [],
        )
    except (pyarrow.ArrowException, UnicodeDecodeError) as error:
        raise DataError(f"{SETTING}: {path} is not a readable parquet file: {error}") from error
    except OSError as error:
        raise DataError(f"{SETTING}: {path} cannot be read: {error.strerror or error}") from error
    missing = [name for name in ("uid", *COLUMNS) if name not in names]
    if missing:
        raise _foreign(path, f"has no column {missing[0]}")
    return {"uid": uids} | {name: table.column(name) for name in COLUMNS}


def _numbers(path: Path, name: str, column: Any) -> np.ndarray:
    values = column.to_numpy()
    if values.dtype.kind not in "fiu":
        raise _foreign(path, f"has {column.type} in its column {name}")
    values = values.astype(float)
    low = 0.0 if name in NOT_NEGATIVE else -LARGEST
    bad = ~((values >= low) & (values <= LARGEST))
    if name == "change":
        bad &= ~np.isnan(values)
    if bad.any():
        row = int(np.argmax(bad))
        raise _foreign(path, f"has {values[row]} in row {row + 1} of its column {name}")
    return values


def _uids(path: Path, uids: list[Any]) -> list[str]:
    seen: set[str] = set()
    for row, uid in enumerate(uids, start=1):
        if not isinstance(uid, str) or uid in seen:
            raise _foreign(path, f"has {uid!r} in row {row} of its column uid, twice or not a text")
        seen.add(uid)
    return uids


def _foreign(path: Path, what: str) -> DataError:
    return DataError(f"{SETTING}: {path} is not a length history: it {what}")
