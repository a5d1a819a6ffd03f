"""Reading records from parquet and jsonl files, each with the place to name in an error."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flexfloor.errors import DataError

PARQUET_BATCH_ROWS = 1024


def read_records(path: str, setting: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (`file, line n` or `file, row n` counted from 1, columns) of a `.parquet` or `.jsonl` file.

    `setting` is the field that named the file, for errors.

    Raises:
        DataError: the file is missing, of another kind, unreadable, or holds no rows.
    """
    readers = {".parquet": _read_parquet, ".jsonl": _read_jsonl, ".json": _read_jsonl}
    reader = readers.get(Path(path).suffix)
    if reader is None:
        raise DataError(f"{setting}: {path} is of an unknown kind, allowed: .parquet, .jsonl")
    num_records = 0
    try:
        for num_records, record in enumerate(reader(path), start=1):  # noqa: B007 (counts the records)
            yield record
    except OSError as error:
        raise DataError(f"{setting}: {path} cannot be read: {error.strerror or error}") from error
    if num_records == 0:
        raise DataError(f"{setting}: {path} holds no rows")


def _read_jsonl(path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    with open(path, "rb") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                where = f"{path}, line {number}"
                yield where, _parse_json(line, where)


def _parse_json(line: bytes, where: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise DataError(f"{where}: not JSON: {error}") from error
    except RecursionError as error:
        raise DataError(f"{where}: values are nested too deeply to be read") from error
    if not isinstance(record, dict):
        raise DataError(f"{where}: holds a {type(record).__name__}, allowed: an object of columns")
    return record


def _read_parquet(path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            number = 0
            for batch in file.iter_batches(PARQUET_BATCH_ROWS):
                for record in batch.to_pylist():
                    number += 1
                    yield f"{path}, row {number}", record
    except pyarrow.ArrowException as error:
        raise DataError(f"{path}: not a readable parquet file: {error}") from error
