"""A run goes on from what is whole: under another layout, past a corrupt checkpoint, keeping its best."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from small_run import learned, metrics_of, run

from flexfloor.stages.best import validation_score

UNVALIDATED = ["trainer.test_freq=-1", "trainer.val_before_train=false"]
FLOAT64 = [*UNVALIDATED, "model.dtype=float64", "trainer.save_freq=1", "actor.optim.lr_warmup_steps=3"]


def checkpoints(folder: Path) -> dict[str, Path]:
    """What is in the folder of checkpoints, by name."""
    return {path.name: path for path in (folder / "checkpoints").iterdir()}


def layout(ranks: int, ep: int) -> list[str]:
    """Overrides for so many ranks."""
    return [f"launch.nproc={ranks}", f"parallel.ep={ep}"]


def test_a_run_resumes_under_another_layout(tmp_path: Path) -> None:
    whole, moved = tmp_path / "whole", tmp_path / "moved"
    assert run(whole, *FLOAT64, *layout(1, 1), "trainer.total_training_steps=3") == 0
    assert run(moved, *FLOAT64, *layout(2, 2), "trainer.total_training_steps=1") == 0
    assert run(moved, *FLOAT64, *layout(1, 1), "trainer.total_training_steps=3") == 0
    found, expected = metrics_of(moved), metrics_of(whole)
    assert sorted(found) == sorted(expected) == [0, 1, 2, 3]
    for step, metrics in expected.items():
        assert learned(found[step]) == pytest.approx(learned(metrics), rel=1e-7, abs=1e-10), step
    assert expected[3]["actor/grad_norm"] > 0, "the weights move, so that a fresh optimizer would show"


def test_a_corrupt_checkpoint_is_passed_over_and_none_is_left_for_a_fresh_start(tmp_path, capfd) -> None:
    shape = [*UNVALIDATED, "trainer.save_freq=1", "trainer.total_training_steps=1"]
    assert run(tmp_path, *shape) == 0
    before = metrics_of(tmp_path)
    shard = tmp_path / "checkpoints" / "step_000001" / "weights" / "__0_0.distcp"
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 4
    shard.write_bytes(content)
    assert run(tmp_path, *shape) == 0
    assert learned(metrics_of(tmp_path)[1]) == learned(before[1]), "trained again, from the one before"
    [aside] = [path for name, path in checkpoints(tmp_path).items() if name.startswith("set-aside-")]
    assert [path.name for path in aside.iterdir()] == ["step_000001"]

    for name in ("step_000000", "step_000001"):
        (tmp_path / "checkpoints" / name / "plain.json").unlink()
    assert run(tmp_path, *shape) == 1
    err = capfd.readouterr().err
    assert "no checkpoint in" in err and "trainer.resume_mode=disable starts anew" in err
    assert {"step_000000", "step_000001"} < set(checkpoints(tmp_path))


def test_the_best_checkpoint_is_kept_and_known_after_a_resume(tmp_path: Path) -> None:
    score_file, reward = tmp_path / "score", tmp_path / "reward.py"
    reward.write_text(
        "from pathlib import Path\n\n\n"
        "def compute_score(data_source, solution_str, ground_truth):\n"
        f"    return float(Path({str(score_file)!r}).read_text())\n"
    )
    folder = tmp_path / "run"
    keep = [
        f"reward.custom_reward_function.path={reward}",
        "trainer.test_freq=1",
        "trainer.save_best=true",
        "trainer.save_freq=1",
        "trainer.max_ckpt_to_keep=1",
    ]
    names = []
    # what all validations of a run score: equal before and after step 1, better after 2, worse after 3 and 4
    for steps, score in [(1, 0.5), (2, 0.75), (4, 0.25)]:
        score_file.write_text(str(score))
        assert run(folder, *keep, f"trainer.total_training_steps={steps}") == 0
        found = checkpoints(folder)
        names.append((found.pop("best").resolve().name, sorted(found)))
    assert names == [
        ("step_000000", ["step_000000", "step_000001"]),
        ("step_000002", ["step_000002"]),
        ("step_000002", ["step_000002", "step_000004"]),
    ]
    extra = json.loads((found["step_000004"] / "plain.json").read_text())["extra"]
    assert extra["best"] == {"step": 2, "score": 0.75}


def test_best_needs_validation(tmp_path: Path, capsys) -> None:
    assert run(tmp_path, "trainer.save_best=true", "trainer.test_freq=-1") == 2
    assert "trainer.save_best" in (err := capsys.readouterr().err) and "trainer.test_freq" in err
    assert not (tmp_path / "checkpoints").exists()


def test_the_score_of_a_validation_is_the_mean_over_sources() -> None:
    metrics = {
        "val-core/gsm8k/mean@4": 0.5,
        "val-core/reasoning_gym/spell/mean@1": 0.0,
        "val-core/gsm8k/best@4/mean": 1.0,
        "val-aux/gsm8k/mean@4": 9.0,
    }
    assert validation_score(metrics) == np.mean([0.5, 0.0])
