"""Whatever stands in a data file: prompts that a run can use, or an error that names the place."""

from __future__ import annotations

import datetime
import decimal
import json
import pickle
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from flexfloor.data.config import DataConfig
from flexfloor.data.demonstrations import demonstrate
from flexfloor.data.prompts import load_prompts
from flexfloor.data.responses import SavedResponse, write_responses
from flexfloor.data.uid import fingerprint
from flexfloor.errors import ConfigError, DataError
from flexfloor.reward.config import RewardConfig
from flexfloor.reward.load import load_scorer

SCREEN_CHARACTERS = 2000
FUZZ = settings(
    max_examples=120,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
TEXT = st.one_of(st.text(max_size=6), st.sampled_from(["", " ", "user", "<eos>", "\ud800", "\x00", "a" * 70]))
PLAIN = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), TEXT)
ANY = st.recursive(
    PLAIN, lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(TEXT, inner, max_size=2))
)
COLUMNS_OF_PARQUET = st.one_of(
    ANY,
    st.binary(max_size=3),
    st.dates().map(lambda day: datetime.datetime(day.year, day.month, day.day)),
    st.decimals(allow_nan=False, allow_infinity=False, min_value=-99, max_value=99, places=2),
)


def valid(source: str = "reasoning_gym/spell_backward") -> dict[str, Any]:
    """A row as it should be."""
    return {
        "data_source": source,
        "prompt": [{"role": "user", "content": "1+1"}],
        "ability": "maths",
        "reward_model": {"style": "rule", "ground_truth": "2"},
        "extra_info": {
            "split": "train",
            "index": 7,
            "metadata": {"n": 1},
            "task_options": {"min_word_len": 3},
        },
    }


PLACES = [
    *[("data_source",), ("ability",), ("reward_model",), ("reward_model", "ground_truth"), ("other",)],
    *[("prompt",), ("prompt", 0), ("prompt", 0, "role"), ("prompt", 0, "content"), ("extra_info",)],
    *[("extra_info", name) for name in ("uid", "index", "metadata", "task_options", "question")],
    ("extra_info", "task_options", "min_word_len"),
]
LACKING = object()


@st.composite
def rows(draw: st.DrawFn, values: st.SearchStrategy[Any] = ANY) -> dict[str, Any]:
    """A row with up to two values that are lacking or anything, each at a place of its own."""
    row = valid(draw(st.sampled_from(["reasoning_gym/spell_backward", "reasoning_gym/x", "sums"])))
    for _ in range(draw(st.integers(0, 2))):
        place = draw(st.sampled_from(PLACES))
        _put(row, place, draw(st.one_of(values, values, st.just(LACKING))))
    return row


def _put(row: Any, place: tuple[Any, ...], value: Any) -> None:
    """Set or take out the value at `place`; nothing if an earlier change has taken the place away."""
    *path, last = place
    try:
        for key in path:
            row = row[key]
        if value is LACKING:
            del row[last]
        else:
            row[last] = value
    except (KeyError, TypeError, IndexError):
        return


def check(path: Any, tokenizer: Any, **settings: Any) -> None:
    """All that reads a file before a rank starts, and what a run writes of its rows later."""
    cfg = DataConfig(train_files=[str(path)], max_response_length=64, **settings)
    try:
        prompts = load_prompts(cfg, tokenizer, "train")
        load_scorer(RewardConfig(), prompts)
        demonstrate(prompts, tokenizer, cfg.max_response_length)
    except (DataError, ConfigError) as error:
        message = str(error)
        assert len(message) <= SCREEN_CHARACTERS
        assert any(place in message for place in (path.name, "prompt ", "data source ")), message
        return
    assert all(1 <= len(prompt.token_ids) <= cfg.max_prompt_length for prompt in prompts)
    assert len({prompt.uid for prompt in prompts}) == len(prompts)
    assert fingerprint(prompts) == fingerprint(pickle.loads(pickle.dumps(prompts)))
    _write(path.with_name("responses.jsonl"), prompts)


def _write(path: Any, prompts: Any) -> None:
    for prompt in prompts:
        prompt.uid.encode()
        prompt.data_source.encode()
    write_responses(
        path,
        [
            SavedResponse(
                uid=prompt.uid,
                data_source=prompt.data_source,
                response_index=0,
                prompt=prompt.text,
                response="",
                finish_reason="eos",
                score=0.0,
                ground_truth=prompt.ground_truth,
            )
            for prompt in prompts
        ],
    )


@FUZZ
@given(st.lists(rows(), min_size=1, max_size=3), st.booleans())
def test_any_rows_in_jsonl(tmp_path, tokenizer, table, chat_template) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in table))
    check(path, tokenizer, chat_template=chat_template)


@FUZZ
@given(st.binary(max_size=40), st.binary(max_size=4), st.integers(0, 400))
@example(b"[" * 100_000, b"", 0)
@example(b'{"prompt":' * 50_000, b"", 0)
@example(b"1" * 5000, b"", 0)
@example(b"\xff\xfe\x00{", b"", 0)
@example(b"", b"\xef\xbb\xbf", 0)
def test_any_bytes_in_jsonl(tmp_path, tokenizer, junk, inside, position) -> None:
    path = tmp_path / "rows.jsonl"
    line = json.dumps(valid()).encode()
    path.write_bytes(line[:position] + inside + line[position:] + b"\n" + junk)
    check(path, tokenizer)


@FUZZ
@given(st.lists(rows(COLUMNS_OF_PARQUET), min_size=1, max_size=2))
def test_any_rows_in_parquet(tmp_path, tokenizer, table) -> None:
    path = tmp_path / "rows.parquet"
    try:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(table), path)
    except (pyarrow.ArrowException, UnicodeEncodeError, OverflowError, TypeError):
        return  # rows that parquet cannot hold
    check(path, tokenizer)


@FUZZ
@given(st.binary(max_size=40), st.integers(0, 3000), st.integers(0, 3000))
def test_a_damaged_parquet_file(tmp_path, tokenizer, junk, start, length) -> None:
    path = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([valid()] * 2), path)
    whole = path.read_bytes()
    path.write_bytes(whole[:start] + junk + whole[start + length :])
    check(path, tokenizer)


@pytest.mark.parametrize(
    "kind",
    [
        pyarrow.map_(pyarrow.string(), pyarrow.string()),
        pyarrow.dictionary(pyarrow.int8(), pyarrow.string()),
        pyarrow.large_string(),
        pyarrow.duration("s"),
        pyarrow.decimal128(6, 2),
    ],
    ids=str,
)
@pytest.mark.parametrize("column", ["data_source", "prompt", "reward_model", "extra_info", "ability"])
def test_kinds_of_columns_that_only_parquet_has(tmp_path, tokenizer, kind, column) -> None:
    values = {
        "map": [("a", "b")],
        "dictionary": "sums",
        "large_string": "sums",
        "decimal128": decimal.Decimal(2),
    }
    value = next((value for name, value in values.items() if str(kind).startswith(name)), 3)
    table = pyarrow.Table.from_pylist([valid()])
    index = table.column_names.index(column)
    array = pyarrow.array([value], pyarrow.string() if "dictionary" in str(kind) else kind)
    array = array.dictionary_encode() if "dictionary" in str(kind) else array
    pyarrow.parquet.write_table(table.set_column(index, column, array), tmp_path / "rows.parquet")
    check(tmp_path / "rows.parquet", tokenizer)
