"""Only a whole checkpoint is found, whatever a broken save or a broken disk left behind."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from flexfloor.errors import CheckpointError
from flexfloor.train import checkpoint_folder
from flexfloor.train.checkpoint_folder import latest_checkpoint, prune, require_whole


def whole(folder: Path, step: int, text: str = "weights") -> Path:
    """A finished checkpoint with two files."""
    checkpoint_folder.start(folder, step)
    partial = checkpoint_folder.partial_folder(folder, step)
    (partial / "deep").mkdir()
    (partial / "deep" / "part").write_text(text)
    (partial / "common").write_text("common")
    sums = {"common": 1, "deep/part": 2}
    return checkpoint_folder.finish(folder, step, layout={"ranks": 2, "ep": 1}, sums=sums)


def steps(folder: Path) -> set[str]:
    """Names of what lies in `folder`."""
    return {path.name for path in folder.iterdir()}


def test_highest_step_is_found(tmp_path: Path) -> None:
    assert latest_checkpoint(tmp_path / "none") is None
    assert latest_checkpoint(tmp_path) is None
    for step in (9, 1_000_000, 10):
        whole(tmp_path, step)
    assert latest_checkpoint(tmp_path) == tmp_path / "step_1000000"


def test_partial_folder_is_never_found(tmp_path: Path) -> None:
    first = whole(tmp_path, 1)
    checkpoint_folder.start(tmp_path, 2)
    assert latest_checkpoint(tmp_path) == first


def test_other_entries_are_left_out(tmp_path: Path) -> None:
    first = whole(tmp_path, 1)
    (tmp_path / "step_000009").write_text("a file")
    (tmp_path / "step_abc").mkdir()
    (tmp_path / "metrics.jsonl").touch()
    assert latest_checkpoint(tmp_path) == first


@pytest.mark.parametrize(
    "damage",
    ["truncate", "remove", "remove manifest", "empty manifest", "other format", "binary", "other content"],
)
def test_damaged_checkpoint_is_passed_over_and_named(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = whole(tmp_path, 1), whole(tmp_path, 2)
    part, manifest = second / "deep" / "part", second / "manifest.json"
    if damage == "truncate":
        os.truncate(part, 3)
    elif damage == "remove":
        part.unlink()
    elif damage == "remove manifest":
        manifest.unlink()
    elif damage == "empty manifest":
        manifest.write_text("")
    elif damage == "binary":
        manifest.write_bytes(b"\xff\xfe{}")
    elif damage == "other content":
        manifest.write_text(manifest.read_text().replace('"files"', '"fimes"'))
    else:
        manifest.write_text(manifest.read_text().replace('"format": 2', '"format": 1'))
    with caplog.at_level(logging.WARNING):
        assert latest_checkpoint(tmp_path) == first
    assert str(second) in caplog.text
    with pytest.raises(CheckpointError, match=f"no whole checkpoint at {second}"):
        require_whole(second)


def test_whole_checkpoint_says_what_saved_it(tmp_path: Path) -> None:
    manifest = require_whole(whole(tmp_path, 7))
    assert (manifest["step"], manifest["layout"]) == (7, {"ranks": 2, "ep": 1})
    assert manifest["files"] == {"common": 6, "deep/part": 7}
    assert manifest["crc32"] == {"common": 1, "deep/part": 2}


def test_same_step_again_takes_the_place(tmp_path: Path) -> None:
    whole(tmp_path, 1, "first")
    assert (whole(tmp_path, 1, "second") / "deep" / "part").read_text() == "second"
    assert steps(tmp_path) == {"step_000001"}


def test_replaced_checkpoint_counts_until_the_new_one_is_in_place(tmp_path: Path) -> None:
    first = whole(tmp_path, 1, "first")
    old = first.rename(tmp_path / "step_000001.old")
    assert latest_checkpoint(tmp_path) == old
    second = whole(tmp_path, 1, "second")
    assert latest_checkpoint(tmp_path) == second
    assert steps(tmp_path) == {"step_000001"}


def test_rest_of_a_broken_save_does_not_get_into_the_next(tmp_path: Path) -> None:
    checkpoint_folder.start(tmp_path, 1)
    (checkpoint_folder.partial_folder(tmp_path, 1) / "rest").touch()
    assert "rest" not in require_whole(whole(tmp_path, 1))["files"]


def test_a_save_clears_away_what_broken_saves_of_other_steps_left(tmp_path: Path) -> None:
    checkpoint_folder.start(tmp_path, 1)
    whole(tmp_path, 2)
    assert steps(tmp_path) == {"step_000002"}


def test_prune_leaves_the_last_whole_ones(tmp_path: Path) -> None:
    for step in range(1, 6):
        whole(tmp_path, step)
    (tmp_path / "step_000004" / "common").unlink()
    prune(tmp_path, keep=2, newest=5)
    assert steps(tmp_path) == {"step_000003", "step_000005"}


def test_prune_leaves_later_steps_alone(tmp_path: Path) -> None:
    for step in (1, 2, 9):
        whole(tmp_path, step)
    prune(tmp_path, keep=1, newest=2)
    assert steps(tmp_path) == {"step_000002", "step_000009"}


@pytest.mark.parametrize(
    ("spare", "left"),
    [({1}, {1, 3, 4}), ({4}, {3, 4}), ({9}, {3, 4}), (set(), {3, 4}), ({1, 2}, {1, 2, 3, 4})],
)
def test_prune_spares_a_step_beside_the_newest(tmp_path: Path, spare: set[int], left: set[int]) -> None:
    for step in (1, 2, 3, 4):
        whole(tmp_path, step)
    prune(tmp_path, keep=2, newest=4, spare=spare)
    assert steps(tmp_path) == {f"step_{step:06d}" for step in left}
