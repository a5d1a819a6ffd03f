"""`flexfloor train -m`: jobs with folders of their own, a table at the end, and no job lost for another."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from small_run import SMALL, metrics_of

from flexfloor import launch
from flexfloor.cli import main
from flexfloor.errors import RewardError
from flexfloor.stop import forwarding_sigterm

SCORER = """
def compute_score(data_source, solution_str, ground_truth, extra_info=None, fails=False):
    if fails:
        raise ZeroDivisionError("the scorer is broken")
    return 0.25
"""


def sweep(folder: Path, *words: str, command: str = "train") -> int:
    return main([command, "-m", *SMALL, f"trainer.default_local_dir={folder}", *words])


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Configurations of the jobs that would have run."""
    configs: list[Any] = []
    monkeypatch.setattr(launch, "run_ranks", lambda _work, _nproc, config, **_: configs.append(config))
    return configs


def rows(out: str) -> list[list[str]]:
    """Cells of the table's rows."""
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines() if "│" in line]


def test_a_failing_job_is_named_and_the_other_one_runs(tmp_path, capfd) -> None:
    (tmp_path / "scorer.py").write_text(SCORER)
    words = [
        f"reward.custom_reward_function.path={tmp_path / 'scorer.py'}",
        "reward.custom_reward_function.kwargs.fails=true,false",
        "trainer.total_training_steps=1",
    ]
    assert sweep(tmp_path / "run", *words) == 1
    shown = capfd.readouterr()
    good, bad = (f"reward.custom_reward_function.kwargs.fails={fails}" for fails in ("False", "True"))
    assert sorted(metrics_of(tmp_path / "run" / good)) == [0, 1]
    table = [row for row in rows(shown.out) if row[0] in ("1", "2")]
    assert [(row[0], row[2]) for row in table] == [("1", "failed"), ("2", "done")]
    assert table[1][3:5] == ["1", "0.250 to 0.250"] and table[1][6] != "-"
    assert "the scorer is broken" in shown.err
    assert f"flexfloor: job 1 ({bad}) failed: " in shown.err.splitlines()[-1]
    assert f"job 2 of 2: {good}, in {tmp_path}/run/{good}" in shown.out


def test_the_table_of_rollouts_has_their_scores(tmp_path, started, capfd) -> None:
    def write(_work, _nproc, config, **_: Any) -> None:
        scores = [config.rollout.val.temperature, 0.0]
        Path(config.generate.output).write_text("".join(json.dumps({"score": s}) + "\n" for s in scores))

    launch.run_ranks = write  # `started` undoes it
    assert sweep(tmp_path, "rollout.val.temperature=0.5,1", command="rollout") == 0
    table = [row for row in rows(capfd.readouterr().out) if row[0] in ("1", "2")]
    assert [row[1:] for row in table] == [
        ["rollout.val.temperature=0.5", "done", "2", "0.250"],
        ["rollout.val.temperature=1", "done", "2", "0.500"],
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["rollout.n=4,1"], "job rollout.n=1: rollout.n = 1: must be 2 or more"),
        (
            ["sft.batch_size=5,25"],
            "job sft.batch_size=25: sft.batch_size = 25: must be at most the number of",
        ),
        (["data.tasks=[]", "data.train_files=[a.jsonl],[b.jsonl]"], "job data.train_files=[a.jsonl]: "),
        (["rollout.n=4"], "there are none"),
    ],
)
def test_nothing_starts_while_any_job_is_wrong(tmp_path, started, capsys, words, message) -> None:
    assert sweep(tmp_path, *words) == 2
    assert not started
    assert message in capsys.readouterr().err


def test_a_sweep_is_no_rank(tmp_path, started, monkeypatch, capsys) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert sweep(tmp_path, "rollout.n=2,4") == 2
    assert "run it without torchrun" in capsys.readouterr().err and not started


def test_sigterm_stops_the_running_job_and_starts_no_other(tmp_path, monkeypatch, capsys) -> None:
    files = []

    def run_ranks(*_: Any, **__: Any) -> None:
        files.append(tmp_path / "stop")
        with forwarding_sigterm(files[-1]):
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(launch, "run_ranks", run_ranks)
    before = signal.getsignal(signal.SIGTERM)
    assert sweep(tmp_path, "rollout.n=2,4") == 0
    assert [file.exists() for file in files] == [True], "the ranks have been asked, and no second job ran"
    assert [row[2] for row in rows(capsys.readouterr().out)] == ["outcome", "stopped", "not started"]
    assert signal.getsignal(signal.SIGTERM) is before


def test_an_interrupted_sweep_still_says_what_it_has(tmp_path, monkeypatch, capsys) -> None:
    def run_ranks(_work, _nproc, config, **_: Any) -> None:
        if config.rollout.n == 4:
            raise KeyboardInterrupt
        if config.rollout.n == 3:
            raise RewardError("prompt p0")

    monkeypatch.setattr(launch, "run_ranks", run_ranks)
    assert sweep(tmp_path, "rollout.n=2,3,4,5") == 130
    shown = capsys.readouterr()
    outcomes = ["outcome", "done", "failed", "interrupted", "not started"]
    assert [row[2] for row in rows(shown.out)] == outcomes
    assert shown.err.splitlines()[-2:] == [
        "flexfloor: job 2 (rollout.n=3) failed: prompt p0",
        "flexfloor: interrupted; all ranks have ended",
    ]
