"""A released rank waits for as long as the others generate; if one of them hangs, that one is named."""

import os
import signal
import time

import pytest
import torch
import torch.distributed as dist
from test_rank_hangs import told_under_torchrun

from flexfloor import heartbeat
from flexfloor.elastic.reunion import meet
from flexfloor.errors import RankError
from flexfloor.launch import run_ranks
from flexfloor.stop import StopRequest

TIMEOUT_SECONDS, HANG_SECONDS, GENERATING_SECONDS = 2.0, 3.0, 8.0


def wait_for_rank_1(seconds, gets_on):
    """Both meet; then rank 1 generates for so long and rank 0 was released at once. A collective follows."""
    sums = []
    for step in (1, 2):
        heartbeat.enter_step(step)
        with heartbeat.stage("rollout"):
            end = time.monotonic() + (seconds if step == 2 and dist.get_rank() == 1 else 0)
            while time.monotonic() < end:
                time.sleep(0.1)
                if gets_on:
                    heartbeat.beat()
            meet()
            dist.all_reduce(total := torch.tensor([dist.get_rank() + step]))
        sums.append(total.item())
    return sums


def run(seconds, gets_on):
    return run_ranks(
        wait_for_rank_1,
        2,
        seconds,
        gets_on,
        collective_timeout_seconds=TIMEOUT_SECONDS,
        hang_seconds=HANG_SECONDS,
        total_timeout_seconds=100,
        threads_per_rank=1,
    )


def test_waiting_longer_than_every_time_out_is_no_failure():
    assert 2 * max(TIMEOUT_SECONDS, HANG_SECONDS) < GENERATING_SECONDS
    assert run(GENERATING_SECONDS, True) == [[3, 5], [3, 5]]


def test_the_rank_that_hangs_is_named_and_not_the_one_that_waits_for_it():
    with pytest.raises(RankError, match=r"^rank 1 of 2 hangs in step 2, stage rollout"):
        run(300, False)


def lose_a_rank_that_is_waited_for(how):
    """Rank 0 was released and waits; rank 1 generates until it fails in the way of `how`.

    SIGTERM of the launcher ends neither: as in a run, it is a request to stop after the step.
    """
    StopRequest().listen()
    heartbeat.enter_step(5)
    with heartbeat.stage("rollout"):
        if dist.get_rank() == 1:
            end = time.monotonic() + 3
            while time.monotonic() < end:
                heartbeat.beat()
                time.sleep(0.1)
            if how == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if how == "raises":
                raise ValueError("the reason")
            time.sleep(300)
        meet()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "hang_seconds", "words"),
    [
        ("killed", 200, "rank 0 of 2 lost its connection to rank 1 of 2, last seen in step 5, stage rollout"),
        ("raises", 200, "rank 1 of 2: ValueError: the reason"),
        ("hangs", HANG_SECONDS, "rank 1 of 2 hangs in step 5, stage rollout: nothing was done for "),
    ],
)
def test_under_torchrun_a_rank_that_waits_in_no_collective_ends_with_the_others(
    tmp_path, how, hang_seconds, words
):
    told = told_under_torchrun(tmp_path, f"lose_a_rank_that_is_waited_for({how!r})", hang_seconds)
    assert len(told) == 1 and told[0].startswith(f"flexfloor: {words}"), told
