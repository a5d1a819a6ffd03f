"""SIGTERM finishes the step, saves and ends with status 0; the same command then goes on as if unbroken."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from small_run import SMALL, learned, metrics_of, run

NUM_STEPS = 5
SHAPE = [f"trainer.total_training_steps={NUM_STEPS}", "actor.optim.lr_warmup_steps=3", "trainer.test_freq=3"]
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, float]]:
    """Metrics of a run that nobody stopped."""
    folder = tmp_path_factory.mktemp("unbroken")
    assert run(folder, *SHAPE) == 0
    return metrics_of(folder)


def start(folder: Path, *launcher: str) -> subprocess.Popen[bytes]:
    """The same run in a process group of its own."""
    words = ["-m", "flexfloor", "train", *SMALL, *SHAPE, f"trainer.default_local_dir={folder}"]
    if launcher:
        words = [*launcher, *words]
    return subprocess.Popen([sys.executable, *words], start_new_session=True, stdout=subprocess.PIPE)


def await_step(folder: Path, step: int) -> None:
    """Return when the metrics of `step` are written."""
    deadline = time.monotonic() + 100
    while not (folder / "metrics.jsonl").exists() or step not in metrics_of(folder):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def saved_step(folder: Path) -> int:
    """The step of the only checkpoint."""
    [name] = [path.name for path in (folder / "checkpoints").iterdir()]
    return int(name.removeprefix("step_"))


def signal_parent(process: subprocess.Popen[bytes]) -> None:
    """To the starting process alone, as a user or a container does."""
    process.send_signal(signal.SIGTERM)


def signal_everyone(process: subprocess.Popen[bytes]) -> None:
    """To the starting process and all below it, as Slurm and systemd do."""
    parent = psutil.Process(process.pid)
    for each in (*parent.children(recursive=True), parent):
        each.send_signal(signal.SIGTERM)


def signal_one_rank(process: subprocess.Popen[bytes]) -> None:
    """To rank 1 alone: the others learn of it from the exchange."""
    ranks = psutil.Process(process.pid).children()
    [rank] = [each for each in ranks if each.environ().get("RANK") == "1"]
    rank.send_signal(signal.SIGTERM)


@pytest.mark.parametrize(
    ("launcher", "send"),
    [
        pytest.param([], signal_parent, marks=pytest.mark.slow),
        ([], signal_everyone),
        (TORCHRUN, signal_one_rank),
    ],
)
def test_a_stopped_run_goes_on_as_if_unbroken(tmp_path, unbroken, launcher, send) -> None:
    process = start(tmp_path, *launcher)
    await_step(tmp_path, 1)
    send(process)
    out, _ = process.communicate(timeout=100)
    assert process.returncode == 0
    step = saved_step(tmp_path)
    assert 1 <= step < NUM_STEPS and max(metrics_of(tmp_path)) == step, "the step it was in is the last"
    assert f"saved after step {step}" in out.decode()
    assert run(tmp_path, *SHAPE) == 0
    parts = metrics_of(tmp_path)
    assert sorted(parts) == list(range(NUM_STEPS + 1))
    for number, whole in unbroken.items():
        assert learned(parts[number]) == learned(whole), number


def test_a_stop_in_the_warm_start_leaves_the_state_before_the_first_step(tmp_path) -> None:
    process = start(tmp_path)
    metrics = tmp_path / "metrics.jsonl"
    deadline = time.monotonic() + 100
    while not metrics.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    signal_parent(process)
    out, _ = process.communicate(timeout=100)
    assert process.returncode == 0
    assert saved_step(tmp_path) == 0 and sorted(metrics_of(tmp_path)) == [0]
    assert "saved after step 0" in out.decode()
