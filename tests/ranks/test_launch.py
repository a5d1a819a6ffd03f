"""Ranks start, report in order, and a rank that fails in any way ends all of them quickly."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
import torch.distributed as dist

from flexfloor.errors import ConfigError, RankError, RewardError
from flexfloor.launch import run_ranks

SOON_SECONDS = 20


class OddError(ConfigError):
    """An error that a user can mend and that does not survive pickling."""

    def __init__(self, field: str, value: int) -> None:
        super().__init__(f"{field} is {value}")


def rank_and_sum(addend: int) -> tuple[int, float]:
    """This rank, and a sum over all ranks; higher ranks finish first."""
    total = torch.tensor([float(dist.get_rank() + addend)])
    dist.all_reduce(total)
    time.sleep(0.2 * (dist.get_world_size() - dist.get_rank()))
    return dist.get_rank(), total.item()


def settings() -> tuple[int, str | None, str, bool]:
    """Threads, an environment variable, the working directory, and whether the patches hold."""
    return (
        torch.get_num_threads(),
        os.environ.get("FLEXFLOOR_TEST"),
        os.getcwd(),
        torch.cuda.current_device() == torch.device("cpu"),
    )


def fail_on(rank: int, how: str, pid_folder: str = "") -> None:
    """Rank `rank` fails in the way of `how`; the others wait for it in a collective."""
    if pid_folder:
        helper = subprocess.Popen(["sleep", "300"])
        Path(pid_folder, str(os.getpid())).touch()
        Path(pid_folder, str(helper.pid)).touch()
    if dist.get_rank() == rank:
        _FAILURES[how]()
    dist.barrier()


def _raise_plain() -> None:
    error = KeyError("the expert")
    error.add_note("stage training, step 7")
    raise error


def _raise_config() -> None:
    raise ConfigError("parallel.ep is 3; allowed: 1, 2, 4")


def _raise_odd() -> None:
    raise OddError("rollout.n", 1)


_FAILURES: dict[str, Any] = {
    "raise": _raise_plain,
    "config": _raise_config,
    "odd": _raise_odd,
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "exit": lambda: os._exit(3),
    "system-exit": lambda: sys.exit(4),
    "hang": lambda: time.sleep(300),
}


def fail_in_turn(first: int) -> None:
    """Both ranks raise, rank `first` a little earlier, as when a peer notices a broken connection."""
    dist.barrier()
    if dist.get_rank() != first:
        time.sleep(0.1)
    raise ValueError(f"rank {dist.get_rank()} raised")


def a_lambda() -> Any:
    """A result that cannot travel."""
    return lambda: None


def reward_error_with_cause() -> None:
    """A user's error raised on rank 1 out of another one."""
    if dist.get_rank() == 1:
        try:
            raise ZeroDivisionError("in the user's function")
        except ZeroDivisionError as error:
            raise RewardError("prompt 'p0', response 2") from error
    dist.barrier()


def wait_for_absent_peer() -> None:
    """Rank 0 waits in a collective that rank 1 never joins."""
    if dist.get_rank() == 0:
        dist.all_reduce(torch.ones(1))
    else:
        time.sleep(300)


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_results_come_in_rank_order(world_size: int) -> None:
    total = sum(range(world_size)) + 10.0 * world_size
    assert run_ranks(rank_and_sum, world_size, 10) == [(rank, total) for rank in range(world_size)]


def test_second_start_is_quick() -> None:
    run_ranks(settings, 1)
    start = time.monotonic()
    run_ranks(settings, 2, threads_per_rank=1)
    assert time.monotonic() - start < 5


def test_rank_gets_threads_environment_folder_and_patches(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run_ranks(settings, 1)
    monkeypatch.setenv("FLEXFLOOR_TEST", "set after the fork server started")
    monkeypatch.chdir(tmp_path)
    expected = (3, "set after the fork server started", str(tmp_path), True)
    assert run_ranks(settings, 2, threads_per_rank=3) == [expected] * 2


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("raise", "rank 1 of 2: KeyError: 'the expert'\nstage training, step 7"),
        ("kill", "rank 1 of 2 was killed by SIGKILL before it reported; it held "),
        ("exit", "rank 1 of 2 ended with exit code 3 before it reported"),
        ("system-exit", "rank 1 of 2: SystemExit: 4"),
        ("odd", "rank 1 of 2: OddError: rollout.n is 1"),
    ],
)
def test_failing_rank_is_named_soon(how: str, message: str) -> None:
    run_ranks(settings, 1)
    start = time.monotonic()
    with pytest.raises(RankError) as raised:
        run_ranks(fail_on, 2, 1, how)
    assert str(raised.value).startswith(message)
    assert ("out-of-memory killer" in str(raised.value)) == (how == "kill")
    assert time.monotonic() - start < SOON_SECONDS
    if how in ("raise", "odd"):
        assert "_raise_" in raised.value.rank_traceback


@pytest.mark.parametrize("first", [0, 1])
def test_first_of_two_failures_is_named(first: int) -> None:
    with pytest.raises(RankError, match=f"^rank {first} of 2: ValueError: rank {first} raised"):
        run_ranks(fail_in_turn, 2, first, threads_per_rank=1)


def test_no_process_is_left_behind(tmp_path: Path) -> None:
    with pytest.raises(RankError, match="rank 0 of 2 was killed"):
        run_ranks(fail_on, 2, 0, "kill", str(tmp_path))
    pids = [int(path.name) for path in tmp_path.iterdir()]
    assert len(pids) == 4
    assert not [pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie"]


def test_users_error_keeps_its_type_and_text() -> None:
    with pytest.raises(ConfigError) as raised:
        run_ranks(fail_on, 2, 1, "config")
    assert str(raised.value) == "parallel.ep is 3; allowed: 1, 2, 4"
    assert type(raised.value) is ConfigError
    [note] = raised.value.__notes__
    assert "rank 1 of 2" in note and "_raise_config" in note


def test_users_error_shows_its_cause() -> None:
    with pytest.raises(RewardError, match="response 2") as raised:
        run_ranks(reward_error_with_cause, 2)
    assert "ZeroDivisionError: in the user's function" in raised.value.__notes__[0]


def test_total_time_out_names_ranks_and_where_they_stand() -> None:
    start = time.monotonic()
    with pytest.raises(RankError, match=r"time limit .* rank 0 of 2, rank 1 of 2") as raised:
        run_ranks(fail_on, 2, 1, "hang", total_timeout_seconds=6)
    assert time.monotonic() - start < SOON_SECONDS
    assert "rank 0 of 2 stood at" in raised.value.rank_traceback
    assert "fail_on" in raised.value.rank_traceback


def test_collective_time_out_names_the_rank_that_waited() -> None:
    start = time.monotonic()
    with pytest.raises(RankError, match=r"^rank 0 of 2: .*[Tt]im") as raised:
        run_ranks(wait_for_absent_peer, 2, collective_timeout_seconds=2)
    assert time.monotonic() - start < SOON_SECONDS
    assert "wait_for_absent_peer" in raised.value.rank_traceback


def test_result_that_cannot_travel_is_named() -> None:
    with pytest.raises(RankError, match=r"^rank 0 of 1: .*pickle"):
        run_ranks(a_lambda, 1)


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_ranks_end_when_their_parent_is_killed(tmp_path: Path, end: signal.Signals) -> None:
    folders = [str(Path(__file__).parent), os.getcwd()]
    code = f"""
import sys; sys.path[:0] = {folders}
from test_launch import fail_on
from flexfloor.launch import run_ranks
run_ranks(fail_on, 2, 1, "hang", {str(tmp_path)!r})
"""
    parent = subprocess.Popen([sys.executable, "-c", code])
    _wait_until(lambda: len(list(tmp_path.iterdir())) == 4)
    parent.send_signal(end)
    assert parent.wait() == -end
    pids = [int(path.name) for path in tmp_path.iterdir()]
    _wait_until(lambda: not any(psutil.pid_exists(pid) for pid in pids))


def test_runs_as_it_is_under_torchrun(tmp_path: Path) -> None:
    folders = [str(Path(__file__).parent), os.getcwd()]
    script = tmp_path / "script.py"
    script.write_text(
        f"""
import sys; sys.path[:0] = {folders}
from test_launch import rank_and_sum
from flexfloor.launch import run_this_rank
rank, total = run_this_rank(rank_and_sum, 10, threads_per_rank=1)
open({str(tmp_path)!r} + f"/{{rank}}", "w").write(str(total))
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
    subprocess.run(command, check=True, timeout=120)
    assert [(tmp_path / str(rank)).read_text() for rank in range(2)] == ["21.0", "21.0"]


def _wait_until(condition: Any) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)
