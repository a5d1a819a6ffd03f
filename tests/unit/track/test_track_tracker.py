"""The tracker with a real offline W&B, whose files are read back."""

from __future__ import annotations

import json
import multiprocessing
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from flexfloor.errors import FlexFloorError
from flexfloor.track.jsonl import read_steps
from flexfloor.track.samples import SampleRow
from flexfloor.track.tracker import Tracker
from flexfloor.track.wandb import STEP_METRIC

CONFIG = {"trainer": {"seed": 3}, "data": {"tasks": ["spell_backward"]}}
ROW = SampleRow(uid="u/1", prompt="Spell ab", response="ba", ground_truth="ba", score=1.0)


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No W&B settings of the person who runs the tests, and no way to a server."""
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")


def make(folder: Path, **changes: object) -> Tracker:
    arguments = {"loggers": ["wandb"], "project": "tiny", "experiment": "first try", "config": CONFIG}
    return Tracker(folder=folder, **{**arguments, **changes})


def wandb_records(folder: Path) -> Iterator:
    """Records of the run's .wandb files (a LevelDB log of protobuf messages after 7 bytes of header)."""
    from wandb.proto.wandb_internal_pb2 import Record

    for path in sorted(folder.glob("wandb/offline-run-*/run-*.wandb")):
        data, position, message = path.read_bytes(), 7, b""
        while position + 7 <= len(data):
            left = 32768 - position % 32768
            if left < 7:
                position += left
                continue
            length, kind = struct.unpack_from("<HB", data, position + 4)
            message += data[position + 7 : position + 7 + length]
            position += 7 + length
            if kind in (1, 4):  # whole, or last part
                record = Record()
                record.ParseFromString(message)
                message = b""
                yield record


def rows(folder: Path) -> list[dict]:
    """What W&B will show: each row's values."""
    found = []
    for record in wandb_records(folder):
        if record.WhichOneof("record_type") == "history":
            items = record.history.item
            found.append(
                {each.key or "/".join(each.nested_key): json.loads(each.value_json) for each in items}
            )
    return found


def test_everything_goes_to_files_without_wandb(tmp_path: Path) -> None:
    tracker = make(tmp_path, loggers=["console"])
    tracker.log({"critic/score/mean": 0.5}, 1)
    tracker.log_samples([ROW], 1)
    tracker.log_image("timeline", tmp_path / "none.png", 1)
    tracker.finish()
    assert tracker.history() == {1: {"critic/score/mean": 0.5}}
    assert read_steps(tmp_path / "samples.jsonl") == [
        {
            "step": 1,
            "table": "val/samples",
            "uid": "u/1",
            "prompt": "Spell ab",
            "response": "ba",
            "ground_truth": "ba",
            "score": 1.0,
        }
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["metrics.jsonl", "samples.jsonl"]


def test_a_nan_is_refused_by_name_and_written_nowhere(tmp_path: Path) -> None:
    tracker = make(tmp_path)
    with pytest.raises(FlexFloorError, match="metric actor/pg_loss at step 2 is nan"):
        tracker.log({"actor/entropy": 1.0, "actor/pg_loss": float("nan")}, 2)
    with pytest.raises(FlexFloorError, match="score of bad"):
        tracker.log_samples(
            [ROW, SampleRow(uid="bad", prompt="", response="", ground_truth="", score=float("nan"))], 2
        )
    tracker.finish(exit_code=1)
    assert tracker.history() == {}
    assert read_steps(tmp_path / "samples.jsonl") == []
    assert rows(tmp_path) == []


def test_an_offline_run_holds_everything_and_is_silent(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from matplotlib.image import imsave

    imsave(tmp_path / "timeline.png", [[0.0, 1.0]])
    with make(tmp_path) as tracker:
        tracker.log({"critic/score/mean": 0.5}, 1)
        tracker.log_image("timeline", tmp_path / "timeline.png", 1)
        tracker.log_samples([ROW], 1)
        tracker.log({"critic/score/mean": 0.75}, 2)
    assert capfd.readouterr() == ("", "")
    (folder,) = tmp_path.glob("wandb/offline-run-*")
    assert folder.name.endswith(tracker.run_id)
    assert list(folder.glob("files/media/images/timeline_1_*.png"))
    (table,) = folder.glob("files/media/table/val/samples_1_*.table.json")
    assert json.loads(table.read_text()) == {
        "columns": ["uid", "prompt", "response", "ground_truth", "score"],
        "data": [["u/1", "Spell ab", "ba", "ba", 1.0]],
    }
    first, second = rows(tmp_path)
    assert (first["_step"], first[STEP_METRIC], first["critic/score/mean"]) == (1, 1, 0.5)
    assert {"timeline/path", "val/samples/path"} <= first.keys()
    assert (second["_step"], second["critic/score/mean"]) == (2, 0.75)
    (run,) = (r.run for r in wandb_records(tmp_path) if r.WhichOneof("record_type") == "run")
    assert (run.run_id, run.project, run.display_name) == (tracker.run_id, "tiny", "first try")
    config = {update.key: json.loads(update.value_json) for update in run.config.update}
    assert config.items() >= CONFIG.items()


def test_a_resumed_run_has_the_same_id_and_no_step_twice(tmp_path: Path) -> None:
    with make(tmp_path) as first:
        for step in (1, 2, 3):
            first.log({"loss": float(step)}, step)
    with make(tmp_path, run_id=first.run_id, first_step=3) as resumed:
        # What "allow" does shows only with a server: without it W&B would empty a run that has this id.
        assert resumed._wandb is not None and resumed._wandb._run.settings.resume == "allow"
        resumed.log({"loss": 30.0}, 3)
        resumed.log({"loss": 40.0}, 4)
    assert resumed.run_id == first.run_id
    ids = {r.run.run_id for r in wandb_records(tmp_path) if r.WhichOneof("record_type") == "run"}
    assert ids == {first.run_id}
    assert resumed.history() == {1: {"loss": 1.0}, 2: {"loss": 2.0}, 3: {"loss": 30.0}, 4: {"loss": 40.0}}


def test_a_step_that_wandb_has_already_passed_is_still_logged(tmp_path: Path) -> None:
    with make(tmp_path) as tracker:
        for step, loss in ((5, 0.5), (3, 0.3), (4, 0.4), (5, 0.55), (6, 0.6), (9, 0.9)):
            tracker.log({"loss": loss}, step)
    found = [(row[STEP_METRIC], row["loss"]) for row in rows(tmp_path)]
    assert found == [(5, 0.5), (3, 0.3), (4, 0.4), (5, 0.55), (6, 0.6), (9, 0.9)]


def test_a_failed_run_is_marked(tmp_path: Path) -> None:
    with pytest.raises(KeyError), make(tmp_path) as tracker:
        tracker.log({"loss": 1.0}, 1)
        raise KeyError
    (end,) = (r.exit for r in wandb_records(tmp_path) if r.WhichOneof("record_type") == "exit")
    assert end.exit_code == 1


def test_run_ids_are_new_unless_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = {make(tmp_path, loggers=[]).run_id for _ in range(3)}
    assert len(ids) == 3
    monkeypatch.setenv("WANDB_RUN_ID", "chosen")
    assert make(tmp_path, loggers=[]).run_id == "chosen"
    assert make(tmp_path, loggers=[], run_id="resumed").run_id == "resumed"


@pytest.mark.parametrize(
    ("environment", "changes"),
    [
        ({"WANDB_MODE": "bogus"}, {}),
        ({"WANDB_MODE": "online"}, {}),
        ({}, {"project": "no/slash"}),
        ({}, {"run_id": "no/slash"}),
    ],
)
def test_what_keeps_wandb_from_starting_names_the_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], changes: dict[str, str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))  # no saved login
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(FlexFloorError, match=r"trainer\.logger: wandb failed"):
        make(tmp_path / "run", **changes)


def test_a_folder_that_wandb_cannot_write_names_the_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wandb").write_text("a file in the way")
    with pytest.raises(FlexFloorError, match=r"trainer\.logger"):
        make(tmp_path)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(FlexFloorError, match=r"trainer\.logger: .* is not writable"):
        make(tmp_path / "other")


def test_wandb_can_be_switched_off_by_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "disabled")
    with make(tmp_path) as tracker:
        tracker.log({"loss": 1.0}, 1)
    assert tracker.history() == {1: {"loss": 1.0}}
    assert list(tmp_path.glob("wandb/*")) == []


def _track_in_child(folder: Path) -> None:
    with make(folder) as tracker:
        tracker.log({"loss": 1.0}, 1)


def test_a_rank_process_ends_with_everything_on_disk(tmp_path: Path) -> None:
    child = multiprocessing.get_context("forkserver").Process(target=_track_in_child, args=(tmp_path,))
    child.start()
    child.join(timeout=60)
    assert child.exitcode == 0
    assert [row["loss"] for row in rows(tmp_path)] == [1.0]
