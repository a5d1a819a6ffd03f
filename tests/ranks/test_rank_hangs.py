"""A rank that hangs in any way is found and named while the others wait; one that is slow by leave is not."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
import torch.distributed as dist

from flexfloor import heartbeat
from flexfloor.errors import RankError
from flexfloor.launch import run_ranks
from flexfloor.stop import StopRequest

HANG_SECONDS = 3.0
SOON_SECONDS = 40


def hang(how: str) -> None:
    """In step 5, rank 1 hangs in the way of `how`; the other waits for it."""
    heartbeat.enter_step(5)
    with heartbeat.stage("update"):
        if dist.get_rank() == 1:
            _HANGS[how]()
        dist.all_reduce(torch.ones(1))


def _hold_the_interpreter() -> None:
    # A regular expression never lets other threads run, and this one would take years.
    threading.Thread(target=re.match, args=(r"(a+)+$", "a" * 50 + "b"), daemon=True).start()


_HANGS: dict[str, Any] = {
    "sleep": lambda: time.sleep(300),
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "interpreter": _hold_the_interpreter,
}


def wait_for_each_other() -> None:
    """Both ranks wait to receive what the other never sends."""
    dist.recv(torch.ones(1), src=1 - dist.get_rank())


def take_long(seconds: float) -> float:
    """Rank 1 is allowed to take long, then works in small pieces; rank 0 waits."""
    if dist.get_rank() == 1:
        with heartbeat.allow(10 * seconds):
            time.sleep(seconds)
        for _ in range(10):
            time.sleep(seconds / 10)
            heartbeat.beat()
    total = torch.ones(1)
    dist.all_reduce(total)
    return total.item()


def leave_a_helper(folder: str) -> None:
    """Every rank starts a process in a session of its own; then one rank is killed."""
    helper = subprocess.Popen(["sleep", "300"], start_new_session=True)
    Path(folder, str(helper.pid)).touch()
    dist.barrier()
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()


def lose_a_peer() -> None:
    """Rank 0 complains of a broken connection before rank 1 says what broke it."""
    with heartbeat.stage("rollout"):
        if dist.get_rank() == 0:
            raise RuntimeError("gloo: Connection closed by peer [127.0.0.1]:4711")
        time.sleep(1)
        raise ValueError("the reason")


@pytest.mark.parametrize(
    ("how", "cause", "stack"),
    [
        ("sleep", "it stands at .*test_rank_hangs.py", "in hang"),
        ("stop", "its process is stopped, by SIGSTOP", ""),
        ("interpreter", "native code", "match"),
    ],
)
def test_a_hanging_rank_is_named_with_its_cause(tmp_path: Path, how: str, cause: str, stack: str) -> None:
    run_ranks(take_long, 2, 0.1)
    start = time.monotonic()
    with pytest.raises(RankError) as raised:
        run_ranks(hang, 2, how, hang_seconds=HANG_SECONDS, stacks_folder=tmp_path, threads_per_rank=1)
    assert time.monotonic() - start < SOON_SECONDS
    first, second, third = str(raised.value).splitlines()
    assert first.startswith("rank 1 of 2 hangs in step 5, stage update: nothing was done for ")
    assert re.match(f"likely cause: .*{cause}", second)
    kept = (tmp_path / "stacks.txt").read_text()
    assert third == f"all ranks' stacks: {tmp_path / 'stacks.txt'}" and "all_reduce" in kept
    assert stack in raised.value.rank_traceback


def test_ranks_that_wait_for_each_other_are_told_so() -> None:
    with pytest.raises(RankError, match="ranks wait for each other") as raised:
        run_ranks(wait_for_each_other, 2, hang_seconds=HANG_SECONDS)
    assert re.search(r"rank 0 at .*wait_for_each_other; rank 1 at .*wait_for_each_other", str(raised.value))


def test_a_rank_that_is_allowed_to_or_gets_on_slowly_is_left_alone() -> None:
    assert run_ranks(take_long, 2, 5.0, hang_seconds=4.0) == [2.0, 2.0]


def test_helpers_in_sessions_of_their_own_end_too(tmp_path: Path) -> None:
    with pytest.raises(RankError, match="rank 1 of 2 was killed"):
        run_ranks(leave_a_helper, 2, str(tmp_path))
    pids = [int(path.name) for path in tmp_path.iterdir()]
    assert len(pids) == 2
    assert not [pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie"]


def test_the_rank_that_failed_is_named_not_the_one_that_noticed_first() -> None:
    with pytest.raises(RankError) as raised:
        run_ranks(lose_a_peer, 2)
    assert str(raised.value) == "rank 1 of 2: ValueError: the reason\nin stage rollout"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("hang('stop')", "rank 1 of 2 hangs in step 5, stage update: nothing was done for "),
        ("hang('sleep')", "rank 1 of 2 hangs in step 5, stage update: nothing was done for "),
        (
            "lose_a_rank()",
            "rank 0 of 2 lost its connection to rank 1 of 2, last seen in step 5, stage update",
        ),
    ],
)
def test_under_torchrun_one_rank_tells_and_all_end(tmp_path: Path, code: str, words: str) -> None:
    told = told_under_torchrun(tmp_path, code, HANG_SECONDS)
    assert len(told) == 1 and told[0].startswith(f"flexfloor: {words}")
    assert "lost" in words or "all_reduce" in (tmp_path / "stacks_0.txt").read_text()


def told_under_torchrun(tmp_path: Path, code: str, hang_seconds: float) -> list[str]:
    """What two ranks of `torchrun` say that run `code`, in which one fails; both end soon."""
    script = tmp_path / "script.py"
    script.write_text(
        f"""
import sys; sys.path[:0] = {[str(Path(__file__).parent), os.getcwd()]}
from pathlib import Path
from flexfloor import cli, launch
from flexfloor.errors import RankError
from test_rank_hangs import hang, lose_a_rank
from test_elastic_reunion import lose_a_rank_that_is_waited_for
def work(): {code}
try:
    launch.run_this_rank(work, hang_seconds={hang_seconds}, stacks_folder=Path({str(tmp_path)!r}))
except RankError as error:
    sys.exit(f"flexfloor: {{error}}")
"""
    )
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=2",
        str(script),
    ]
    start = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode != 0 and time.monotonic() - start < 60 + SOON_SECONDS
    return [line for line in done.stderr.splitlines() if line.startswith("flexfloor: ")]


def lose_a_rank() -> None:
    """Rank 1 is killed in step 5, in a run that SIGTERM does not end at once."""
    StopRequest().listen()
    heartbeat.enter_step(5)
    with heartbeat.stage("update"):
        if dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        dist.all_reduce(torch.ones(1))
