import json
import re

import pyarrow
import pyarrow.parquet
import pytest

from flexfloor.data.files import read_records
from flexfloor.errors import DataError


def read(path):
    return list(read_records(str(path), "data.train_files"))


def test_jsonl_rows_come_with_their_line(tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text('{"a": 1}\n\n{"a": "é"}\n', encoding="utf-8")
    assert read(file) == [(f"{file}, line 1", {"a": 1}), (f"{file}, line 3", {"a": "é"})]


def test_parquet_rows_come_with_their_number_over_batches(tmp_path, monkeypatch):
    monkeypatch.setattr("flexfloor.data.files.PARQUET_BATCH_ROWS", 2)
    file = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"a": [10, 20, 30]}), file)
    assert read(file) == [(f"{file}, row {n}", {"a": 10 * n}) for n in (1, 2, 3)]


def test_nested_columns_read_the_same_from_both_kinds(tmp_path, record):
    (tmp_path / "rows.jsonl").write_text(json.dumps(record))
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([record]), tmp_path / "rows.parquet")
    [(_, from_jsonl)], [(_, from_parquet)] = read(tmp_path / "rows.jsonl"), read(tmp_path / "rows.parquet")
    assert from_jsonl == from_parquet == record


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("rows.jsonl", b'{"a": 1}\n{"a": \n', "rows.jsonl, line 2: not JSON"),
        ("rows.jsonl", b'{"a": 1}\n\xff\xfe\n', "rows.jsonl, line 2: not JSON"),
        ("rows.jsonl", b"[1, 2]\n", "rows.jsonl, line 1: holds a list"),
        ("rows.jsonl", b"", "data.train_files: .*rows.jsonl holds no rows"),
        ("rows.jsonl", b"\n \n", "data.train_files: .*rows.jsonl holds no rows"),
        ("rows.parquet", b"", "rows.parquet: not a readable parquet file"),
        ("rows.parquet", b"PAR1 nonsense", "rows.parquet: not a readable parquet file"),
        (
            "rows.csv",
            b"a\n1\n",
            "data.train_files: .*rows.csv is of an unknown kind, allowed: .parquet, .jsonl",
        ),
    ],
)
def test_an_unusable_file_is_named(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        read(tmp_path / name)


@pytest.mark.parametrize("name", ["gone.jsonl", "gone.parquet"])
def test_a_missing_file_is_named_with_its_setting(tmp_path, name):
    with pytest.raises(
        DataError, match=rf"data.train_files: {re.escape(str(tmp_path / name))} .*No such file"
    ):
        read(tmp_path / name)


def test_a_folder_is_no_file(tmp_path):
    (tmp_path / "rows.jsonl").mkdir()
    with pytest.raises(DataError, match=r"rows.jsonl cannot be read: Is a directory"):
        read(tmp_path / "rows.jsonl")


def test_an_empty_parquet_file_holds_no_rows(tmp_path):
    pyarrow.parquet.write_table(
        pyarrow.table({"a": pyarrow.array([], pyarrow.int64())}), tmp_path / "rows.parquet"
    )
    with pytest.raises(DataError, match=r"rows.parquet holds no rows"):
        read(tmp_path / "rows.parquet")
