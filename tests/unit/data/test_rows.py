import json

import pytest

from flexfloor.data.rows import parse_row, read_rows
from flexfloor.errors import DataError


def parse(record):
    return parse_row(record, where="f.jsonl, line 3")


def test_all_columns_of_a_row_are_taken(record):
    row = parse(record)
    assert (row.where, row.data_source, row.ability, row.ground_truth) == (
        "f.jsonl, line 3",
        "sums",
        "maths",
        "2",
    )
    assert row.messages == ({"role": "user", "content": "1+1"},)
    assert row.extra_info == {"split": "train", "index": 7}


def test_a_plain_string_is_one_user_message(record):
    assert parse({**record, "prompt": "1+1"}) == parse(record)


@pytest.mark.parametrize(
    "change", [{"ability": None, "extra_info": None}, {"ability": ..., "extra_info": ...}]
)
def test_optional_columns_may_be_null_or_missing(record, change):
    given = {name: value for name, value in {**record, **change}.items() if value is not ...}
    row = parse(given)
    assert (row.ability, row.extra_info) == ("", {})


@pytest.mark.parametrize("name", ["data_source", "prompt", "reward_model"])
def test_a_missing_column_is_named_with_those_that_are_there(record, name):
    del record[name]
    with pytest.raises(
        DataError, match=rf"^f.jsonl, line 3: column {name} is missing, columns there: .*ability"
    ):
        parse(record)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data_source": 3}, "column data_source holds int, allowed: a string"),
        ({"data_source": None}, "column data_source holds nothing, allowed: a string"),
        ({"prompt": 3}, "column prompt holds int, allowed: a list of messages"),
        ({"prompt": []}, "column prompt holds no message"),
        ({"prompt": ["hi"]}, "column prompt, message 1 is str, allowed: an object with role and content"),
        (
            {"prompt": [{"role": "user", "content": "a"}, {"role": "user"}]},
            "column prompt, message 2: content is nothing, allowed: a string",
        ),
        ({"prompt": [{"role": "user", "content": [1]}]}, "column prompt, message 1: content is list"),
        ({"reward_model": "2"}, "column reward_model holds str, allowed: an object with ground_truth"),
        ({"reward_model": {"style": "rule"}}, "column reward_model has no ground_truth, it has: style"),
        ({"extra_info": [1]}, "column extra_info holds list, allowed: an object"),
        ({"data_source": " "}, "column data_source has 1 characters, allowed: 1 to 200"),
        ({"data_source": "s" * 201}, "column data_source has 201 characters"),
        ({"data_source": "\ud800"}, "column data_source is not valid Unicode"),
        ({"extra_info": {"uid": [1]}}, "column extra_info, uid is list, allowed: a string or a whole number"),
        ({"extra_info": {"uid": 0.5}}, "column extra_info, uid is float"),
        ({"extra_info": {"uid": "\ud800"}}, "column extra_info, uid is not valid Unicode"),
        ({"extra_info": {"uid": "u" * 201}}, "column extra_info, uid has 201 characters"),
        ({"ability": 1}, "column ability holds int, allowed: a string"),
    ],
)
def test_a_column_of_the_wrong_type_is_named(record, change, message):
    with pytest.raises(DataError, match=rf"^f.jsonl, line 3: {message}"):
        parse({**record, **change})


def test_files_are_read_in_order_with_their_own_prompt_column(tmp_path, record):
    record["question"] = record.pop("prompt")
    paths = []
    for name in ("b", "a"):
        file = tmp_path / f"{name}.jsonl"
        file.write_text(json.dumps({**record, "data_source": name}))
        paths.append(str(file))
    rows = read_rows(paths, "data.train_files", prompt_key="question")
    assert [row.data_source for row in rows] == ["b", "a"]
