"""Response lengths on disk: columns that come back as they were, also after a stop and a resume."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flexfloor.errors import FlexFloorError
from flexfloor.track.lengths import LengthLog, StepLengths, read_lengths

PLAIN = StepLengths(
    uid=["a", "a", "</script>é"],
    response_index=[0, 1, 0],
    num_tokens=[5, 1, 32],
    truncated=[False, False, True],
)
PREDICTED = StepLengths(
    uid=["b"],
    response_index=[3],
    num_tokens=[7],
    truncated=[False],
    predicted_p10=[1 / 3],
    predicted_p50=[7.0],
    predicted_p90=[7.0],
)


def write(path: Path, steps: dict[int, StepLengths], first_step: int = 0) -> None:
    log = LengthLog(path, first_step)
    for step, lengths in steps.items():
        log.write(step, lengths)
    log.close()


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "lengths.jsonl"
    write(path, {1: PLAIN, 2: PREDICTED})
    assert read_lengths(path) == {1: PLAIN, 2: PREDICTED}
    first, second = (json.loads(line) for line in path.read_text().splitlines())
    assert first == {
        "step": 1,
        "uid": ["a", "a", "</script>é"],
        "response_index": [0, 1, 0],
        "num_tokens": [5, 1, 32],
        "truncated": [False, False, True],
    }
    assert second["predicted_p10"] == [1 / 3]


def test_a_run_without_the_file_has_no_lengths(tmp_path: Path) -> None:
    assert read_lengths(tmp_path / "lengths.jsonl") == {}


def test_a_resumed_run_replaces_the_steps_after_its_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "lengths.jsonl"
    write(path, {1: PLAIN, 2: PLAIN, 3: PLAIN})
    with path.open("a") as file:
        file.write('{"step": 4, "uid": ["cut o')
    write(path, {2: PREDICTED}, first_step=2)
    assert read_lengths(path) == {1: PLAIN, 2: PREDICTED}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"num_tokens": [5]}, "columns are not equally long"),
        ({"num_tokens": [5, 0, 1]}, "a response of 0 tokens"),
        ({"predicted_p50": [1.0, 1.0, 1.0]}, "some quantiles are predicted and others are not"),
        (
            {"predicted_p10": [3.0] * 3, "predicted_p50": [2.0] * 3, "predicted_p90": [4.0] * 3},
            "quantiles out of order: 3.0, 2.0, 4.0",
        ),
    ],
)
def test_columns_that_contradict_each_other_are_refused(changed: dict, message: str) -> None:
    columns = {name: getattr(PLAIN, name) for name in ("uid", "response_index", "num_tokens", "truncated")}
    with pytest.raises(AssertionError, match=message):
        StepLengths(**{**columns, **changed})


@pytest.mark.parametrize("line", ['{"step": 3}', '{"step": 3, "uid": ["a"], "lengths": [1]}'])
def test_a_line_of_something_else_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "lengths.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(FlexFloorError, match=r"lengths\.jsonl, step 3: no columns of response lengths"):
        read_lengths(path)
