"""Step logs: strict lines, no step twice, nothing lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexfloor.errors import FlexFloorError
from flexfloor.track.jsonl import StepLog, read_steps


def write(path: Path, steps: list[int], first_step: int = 0) -> None:
    log = StepLog(path, first_step)
    for step in steps:
        log.write({"step": step, "run": first_step})
    log.close()


def steps_in(path: Path) -> list[tuple[int, int]]:
    return [(record["step"], record["run"]) for record in read_steps(path)]


def test_a_resumed_run_replaces_the_steps_it_runs_again(tmp_path: Path) -> None:
    path = tmp_path / "run" / "log.jsonl"
    write(path, [0, 1, 2, 2, 3])
    write(path, [2, 3, 4], first_step=2)
    assert steps_in(path) == [(0, 0), (1, 0), (2, 2), (3, 2), (4, 2)]
    aside = [
        json.loads(line)["step"] for line in path.with_name("log.jsonl.dropped").read_text().splitlines()
    ]
    assert aside == [2, 2, 3]


def test_a_new_run_in_an_old_folder_starts_empty_and_keeps_the_old_lines(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    write(path, [0, 1])
    write(path, [0], first_step=0)
    assert steps_in(path) == [(0, 0)]
    assert len(path.with_name("log.jsonl.dropped").read_text().splitlines()) == 2


def test_each_line_is_on_disk_at_once(tmp_path: Path) -> None:
    log = StepLog(tmp_path / "log.jsonl")
    log.write({"step": 0})
    assert read_steps(tmp_path / "log.jsonl") == [{"step": 0}]
    log.write({"step": 1})
    assert len(read_steps(tmp_path / "log.jsonl")) == 2
    log.close()


@given(cut=st.integers(1, 40))
def test_a_line_cut_off_by_a_kill_is_dropped(cut: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("cut") / "log.jsonl"
    write(path, [0, 1])
    line = json.dumps({"step": 2, "text": "an unfinished line"}, ensure_ascii=False)
    with path.open("a") as file:
        file.write(line[:cut])
    assert len(line) > 40
    assert [record["step"] for record in read_steps(path)] == [0, 1]
    log = StepLog(path, first_step=2)
    log.write({"step": 2})
    log.close()
    assert [record["step"] for record in read_steps(path)] == [0, 1, 2]


def test_a_broken_line_in_the_middle_names_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 0}\n{"step": \n{"step": 2}\n')
    with pytest.raises(FlexFloorError, match=r"log\.jsonl, line 2"):
        read_steps(path)
    with pytest.raises(FlexFloorError, match="line 2"):
        StepLog(path, first_step=1)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object()])
def test_only_strict_json_is_written(tmp_path: Path, value: object) -> None:
    log = StepLog(tmp_path / "log.jsonl")
    with pytest.raises((ValueError, TypeError)):
        log.write({"step": 0, "value": value})
    log.close()
    assert (tmp_path / "log.jsonl").read_text() == ""


def test_any_text_comes_back(tmp_path: Path) -> None:
    texts = ["line\nbreak\u2028\x1b[31m", "é漢🙂", "lone \ud800 surrogate"]
    log = StepLog(tmp_path / "log.jsonl")
    for text in texts:
        log.write({"step": 0, "text": text})
    log.close()
    assert [record["text"] for record in read_steps(tmp_path / "log.jsonl")] == texts


def test_a_folder_that_cannot_be_made_names_the_setting(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FlexFloorError, match=r"trainer\.default_local_dir"):
        StepLog(tmp_path / "file" / "log.jsonl")


def test_no_file_means_no_records(tmp_path: Path) -> None:
    assert read_steps(tmp_path / "none.jsonl") == []
