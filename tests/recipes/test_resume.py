"""A run goes on from what is whole: under another layout, past a corrupt checkpoint, keeping its best."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from small_run import learned, metrics_of, run

from flexfloor.train.checkpoint_folder import require_whole

FLOAT64 = ["model.dtype=float64", "trainer.save_freq=1", "actor.optim.lr_warmup_steps=3"]


def checkpoints(folder: Path) -> dict[str, Path]:
    """What is in the folder of checkpoints, by name."""
    return {path.name: path for path in (folder / "checkpoints").iterdir()}


def layout(ranks: int, ep: int) -> list[str]:
    """Overrides for so many ranks."""
    return [f"launch.nproc={ranks}", f"parallel.ep={ep}"]


def test_a_run_resumes_under_other_layouts(tmp_path: Path) -> None:
    whole, moved = tmp_path / "whole", tmp_path / "moved"
    assert run(whole, *FLOAT64, *layout(1, 1), "trainer.total_training_steps=4") == 0
    for steps, (ranks, ep) in enumerate([(2, 2), (1, 1), (4, 2)], start=2):
        assert run(moved, *FLOAT64, *layout(ranks, ep), f"trainer.total_training_steps={steps}") == 0
    found, expected = metrics_of(moved), metrics_of(whole)
    assert sorted(found) == sorted(expected) == [0, 1, 2, 3, 4]
    for step, metrics in expected.items():
        assert learned(found[step]) == pytest.approx(learned(metrics), rel=1e-7, abs=1e-10), step
    assert expected[4]["actor/grad_norm"] > 0


def test_a_corrupt_checkpoint_is_passed_over_for_the_one_before(tmp_path: Path, capfd) -> None:
    shape = ["trainer.save_freq=1", "trainer.total_training_steps=2"]
    assert run(tmp_path, *shape) == 0
    before = metrics_of(tmp_path)
    shards = sorted((tmp_path / "checkpoints" / "step_000002" / "weights").glob("*.distcp"))
    content = bytearray(shards[0].read_bytes())
    content[len(content) // 2] ^= 4
    shards[0].write_bytes(content)
    capfd.readouterr()
    assert run(tmp_path, *shape) == 0
    out, err = capfd.readouterr()
    assert f"step_000002/weights/{shards[0].name} is corrupt" in err and "step_000001, 2 steps in all" in out
    assert learned(metrics_of(tmp_path)[2]) == learned(before[2]), "trained again"
    [aside] = [path for name, path in checkpoints(tmp_path).items() if name.startswith("set-aside-")]
    assert [path.name for path in aside.iterdir()] == ["step_000002"]


def test_a_run_whose_checkpoints_are_all_broken_says_so_and_keeps_them(tmp_path: Path, capfd) -> None:
    assert run(tmp_path, "trainer.save_freq=1", "trainer.total_training_steps=1") == 0
    for path in checkpoints(tmp_path).values():
        (path / "plain.json").unlink()
    assert run(tmp_path, "trainer.save_freq=1", "trainer.total_training_steps=1") == 1
    err = capfd.readouterr().err
    assert "no checkpoint in" in err and "trainer.resume_mode=disable starts anew" in err
    assert sorted(checkpoints(tmp_path)) == ["step_000000", "step_000001"]


def test_the_best_checkpoint_is_kept_and_known_after_a_resume(tmp_path: Path) -> None:
    scores = tmp_path / "scores.json"
    reward = tmp_path / "reward.py"
    reward.write_text(
        "import json\nfrom pathlib import Path\n\n\n"
        "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n"
        f"    return json.loads(Path({str(scores)!r}).read_text())\n"
    )
    folder = tmp_path / "run"
    keep = [
        f"reward.custom_reward_function.path={reward}",
        "trainer.test_freq=1",
        "trainer.save_best=true",
        "trainer.max_ckpt_to_keep=1",
    ]
    names = []
    # one step more each time, whose validation scores so much; a validation before the first step scores 0.5
    for steps, score in enumerate([0.5, 0.75, 0.25, 0.75, 1.0]):
        scores.write_text(json.dumps(score))
        assert run(folder, *keep, f"trainer.total_training_steps={steps}", "trainer.save_freq=2") == 0
        best = checkpoints(folder)["best"].resolve().name
        names.append((best, sorted(set(checkpoints(folder)) - {"best"})))
    assert names == [
        ("step_000000", ["step_000000"]),
        ("step_000001", ["step_000001"]),
        ("step_000001", ["step_000001", "step_000002"]),
        ("step_000001", ["step_000001", "step_000003"]),
        ("step_000004", ["step_000004"]),
    ]
    extra = json.loads((checkpoints(folder)["best"] / "plain.json").read_text())["extra"]
    assert extra["best"] == {"step": 4, "score": 1.0}
    assert require_whole(folder / "checkpoints" / "best")["step"] == 4


def test_best_needs_validation(tmp_path: Path, capsys) -> None:
    assert run(tmp_path, "trainer.save_best=true", "trainer.test_freq=-1") == 1
    assert "trainer.save_best" in (err := capsys.readouterr().err) and "trainer.test_freq" in err
    assert not (tmp_path / "checkpoints").exists()


def test_the_score_of_a_validation_is_the_mean_over_sources() -> None:
    from flexfloor.stages.best import validation_score

    metrics = {
        "val-core/gsm8k/mean@4": 0.5,
        "val-core/reasoning_gym/spell/mean@1": 0.0,
        "val-core/gsm8k/best@4/mean": 1.0,
        "val-aux/gsm8k/mean@4": 9.0,
    }
    assert validation_score(metrics) == np.mean([0.5, 0.0])
