"""Nested plain data with NumPy arrays in it, as a JSON file and an NPZ file beside it, without pickle.

Invariants:
- What is read equals what was written, arrays with their dtype; tuples come back as lists, and NumPy's
  scalars as Python's.
- What cannot come back equal is refused with its place in the data.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from flexfloor.errors import CheckpointError

_ARRAY = "__array__"


def write_plain(path: Path, data: dict[str, Any]) -> None:
    """Write `data` to `path`.json and `path`.npz.

    Raises:
        CheckpointError: for a value that is not None, bool, int, float, str, list, tuple, dict with string
            keys, or an array of numbers, booleans or fixed-width strings.
    """
    arrays: dict[str, np.ndarray] = {}
    path.with_suffix(".json").write_text(json.dumps(_plain(data, "extra", arrays)))
    np.savez(path.with_suffix(".npz"), **arrays)  # type: ignore[arg-type]  # no array is named allow_pickle


def read_plain(path: Path) -> dict[str, Any]:
    """What `write_plain` wrote to `path`."""
    with np.load(path.with_suffix(".npz"), allow_pickle=False) as arrays:
        return _restored(json.loads(path.with_suffix(".json").read_text()), arrays)


def _plain(value: Any, place: str, arrays: dict[str, np.ndarray]) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.number | np.bool_):
        return value.item()
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        name = f"array_{len(arrays)}"
        arrays[name] = value
        return {_ARRAY: name}
    if isinstance(value, list | tuple):
        return [_plain(item, f"{place}[{index}]", arrays) for index, item in enumerate(value)]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value) and _ARRAY not in value:
        return {key: _plain(item, f"{place}.{key}", arrays) for key, item in value.items()}
    raise CheckpointError(f"{place} is a {type(value).__name__} that a checkpoint cannot hold: {value!r:.80}")


def _restored(value: Any, arrays: Any) -> Any:
    if isinstance(value, list):
        return [_restored(item, arrays) for item in value]
    if isinstance(value, dict):
        return (
            arrays[value[_ARRAY]]
            if _ARRAY in value
            else {key: _restored(v, arrays) for key, v in value.items()}
        )
    return value
