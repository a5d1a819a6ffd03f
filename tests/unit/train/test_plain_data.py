"""Plain data comes back equal, and what could not is refused with its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flexfloor.errors import CheckpointError
from flexfloor.train.plain_data import read_plain, write_plain


def test_comes_back_equal(tmp_path: Path) -> None:
    data = {"none": None, "flags": [True, False], "float": 0.1, "text": "ä\n", "deep": {"list": [1, [2, {}]]}}
    write_plain(tmp_path / "data", data)
    assert read_plain(tmp_path / "data") == data


@pytest.mark.parametrize(
    "array",
    [
        np.array([2**63, 1], dtype=np.uint64),
        np.array([0.1, np.nan], dtype=np.float32),
        np.zeros((2, 0), dtype=np.int8),
        np.array(["a", "bc"]),
        np.array(True),
    ],
)
def test_arrays_keep_dtype_shape_and_bits(tmp_path: Path, array: np.ndarray) -> None:
    write_plain(tmp_path / "data", {"a": {"b": [array]}})
    [back] = read_plain(tmp_path / "data")["a"]["b"]
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    assert back.tobytes() == array.tobytes()


def test_tuples_become_lists_and_numpy_scalars_numbers(tmp_path: Path) -> None:
    write_plain(tmp_path / "data", {"pair": (1, 2), "count": np.int64(3), "share": np.float32(0.5)})
    back = read_plain(tmp_path / "data")
    assert back == {"pair": [1, 2], "count": 3, "share": 0.5}
    assert type(back["count"]) is int


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({"a": {1: "integer key"}}, r"extra\.a is a dict"),
        ({"a": [0, {1, 2}]}, r"extra\.a\[1\] is a set"),
        ({"a": np.array([object()])}, r"extra\.a is a ndarray"),
        ({"a": Path("x")}, r"extra\.a is a .*Path"),
    ],
)
def test_refuses_with_the_place(tmp_path: Path, value: dict[str, Any], place: str) -> None:
    with pytest.raises(CheckpointError, match=place):
        write_plain(tmp_path / "data", value)
