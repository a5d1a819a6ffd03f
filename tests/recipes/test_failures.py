"""What a user of `flexfloor train` sees when a rank fails: one message, a status above 0, no rank left."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from small_run import SMALL, run

HANG_SECONDS = 10
SOON_SECONDS = 60
LONG = [
    "sft.steps=0",
    "trainer.val_before_train=false",
    "trainer.test_freq=-1",
    "trainer.total_training_steps=9999",
]
LIMIT = f"launch.hang_seconds={HANG_SECONDS}"


class Training:
    """A run of many steps in processes of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        words = ["train", *SMALL, *LONG, LIMIT, f"trainer.default_local_dir={folder}"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "flexfloor", *words],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._await_steps(2)
        self.processes = psutil.Process(self.process.pid).children(recursive=True)
        self.ranks = [each for each in self.processes if self._is_rank(each)]
        assert len(self.ranks) == 2

    def _await_steps(self, number: int) -> None:
        metrics, deadline = self.folder / "metrics.jsonl", time.monotonic() + 150
        while not metrics.exists() or len(metrics.read_text().splitlines()) < number:
            assert time.monotonic() < deadline and self.process.poll() is None
            time.sleep(0.1)

    def _is_rank(self, process: psutil.Process) -> bool:
        [parent] = [each for each in self.processes if each.pid == process.ppid()] or [None]
        return parent is not None

    def outcome(self) -> tuple[int, str]:
        """Status and message, once every process has ended; soon."""
        start = time.monotonic()
        _, message = self.process.communicate(timeout=SOON_SECONDS)
        while left := [each for each in self.processes if _runs(each)]:
            assert time.monotonic() - start < SOON_SECONDS, left
            time.sleep(0.1)
        return self.process.returncode, message


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def last_step(folder: Path) -> int:
    """The last step whose metrics were written."""
    return json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])["step"]


@pytest.mark.parametrize(
    ("end", "words", "causes"),
    [
        pytest.param(
            signal.SIGKILL,
            "was killed by SIGKILL",
            ["out-of-memory killer", "it held"],
            marks=pytest.mark.slow,
        ),
        (
            signal.SIGSTOP,
            "hangs",
            ["stopped, by SIGSTOP", f"launch.hang_seconds = {HANG_SECONDS}", "stacks.txt"],
        ),
    ],
)
def test_a_rank_that_is_killed_or_stopped_is_named_with_step_stage_and_cause(tmp_path, end, words, causes):
    training = Training(tmp_path)
    training.ranks[1].send_signal(end)
    status, message = training.outcome()
    assert status == 1
    [first] = [line for line in message.splitlines() if line.startswith("flexfloor: ")]
    found = re.match(
        rf"flexfloor: rank [01] of 2 {words} in step (\d+), (stage \w+|between two stages)", first
    )
    assert found and int(found[1]) in (last_step(tmp_path), last_step(tmp_path) + 1)
    for cause in causes:
        assert cause in message
    assert "Traceback" not in message and len(message.splitlines()) < 25


def test_an_interrupt_ends_everything_at_once(tmp_path):
    training = Training(tmp_path)
    training.process.send_signal(signal.SIGINT)
    assert training.outcome() == (130, "flexfloor: interrupted; all ranks have ended\n")


def failed(folder: Path, capfd: pytest.CaptureFixture[str], *overrides: str) -> str:
    """What a run in `folder` writes that ends with status 1."""
    assert run(folder, *LONG, LIMIT, *overrides) == 1
    return capfd.readouterr().err


REWARD = """
import re, time
def backtrack(data_source, solution_str, ground_truth):
    return float(bool(re.match(r"(a+)+$", "a" * 50 + "b")))
def sleep(data_source, solution_str, ground_truth):
    time.sleep(300)
"""


def own_reward(folder: Path, name: str) -> list[str]:
    """Settings for the function `name` of the rewards above."""
    (folder / "reward.py").write_text(REWARD)
    section = "reward.custom_reward_function"
    return [f"{section}.path={folder}/reward.py", f"{section}.name={name}"]


@pytest.mark.slow
def test_a_reward_that_holds_the_interpreter_is_found_long_before_its_own_time_out(tmp_path, capfd):
    start = time.monotonic()
    message = failed(tmp_path / "run", capfd, *own_reward(tmp_path, "backtrack"))
    assert time.monotonic() - start < 2 * SOON_SECONDS
    assert re.search(r"flexfloor: rank [01] of 2 hangs in step 1, stage rollout: nothing was done", message)
    assert "native code" in message and "in backtrack" in message


@pytest.mark.slow
def test_a_reward_that_only_hangs_ends_by_its_own_time_out(tmp_path, capfd):
    settings = [*own_reward(tmp_path, "sleep"), f"reward.timeout_seconds={HANG_SECONDS + 5}"]
    message = failed(tmp_path / "run", capfd, *settings)
    assert f"no result within {HANG_SECONDS + 5} seconds (reward.timeout_seconds = " in message
    assert re.search(r"\(on rank [01] of 2, step 1, stage rollout\)", message)
    assert "likely cause" not in message


FAMILY = """
import torch
from flexfloor.models.attention import RolloutSelfAttention
from flexfloor.models.mixtral import Mixtral

class Broken(Mixtral):
    def block_spec(self, config):
        raise ZeroDivisionError("no layer for you")

class Hungry(Mixtral):
    def adapt_attention(self, attention):
        super().adapt_attention(attention)
        attention.module = HungryAttention

class HungryAttention(RolloutSelfAttention):
    def forward(self, *args, inference_context=None, **kwargs):
        if inference_context is not None:
            torch.empty(10**13)
        return super().forward(*args, inference_context=inference_context, **kwargs)
"""


def own_family(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Setting for the class `name` of the families above."""
    (folder / "my_family_of_failures.py").write_text(FAMILY)
    monkeypatch.syspath_prepend(folder)
    return f"model.family=my_family_of_failures:{name}"


def test_an_exception_names_rank_and_stage_below_its_traceback(tmp_path, capfd, monkeypatch):
    message = failed(tmp_path / "run", capfd, own_family(tmp_path, "Broken", monkeypatch))
    *traceback, first, second = message.splitlines()
    assert re.match("flexfloor: rank [01] of 2: ZeroDivisionError: no layer for you", first)
    assert second == "in stage set-up"
    assert any("my_family_of_failures.py" in line for line in traceback) and message.count("flexfloor: ") == 1


def test_memory_that_runs_out_is_told_with_what_to_lower(tmp_path, capfd, monkeypatch):
    hungry = [own_family(tmp_path, "Hungry", monkeypatch), "rollout.path=reference"]
    message = failed(tmp_path / "run", capfd, *hungry)
    [first, *_] = [line for line in message.splitlines() if line.startswith("flexfloor: ")]
    assert first == (
        "flexfloor: out of memory in stage rollout: lower rollout.kv_budget_bytes = 268435456 or "
        "rollout.max_live_sequences = 64 or data.max_response_length = 12"
    )
    assert "can't allocate memory" in message
    assert re.search(r"\(on rank [01] of 2, step 1, stage rollout\)", message)
