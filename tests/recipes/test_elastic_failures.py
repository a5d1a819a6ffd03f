"""A rank that fails before, during or after a shrink: one message with its stage, and no process left."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import psutil
import pytest
from failing_run import ELASTIC, KILL, RAISE, marked
from small_run import run

SOON_SECONDS = 60
FAMILY = '''
import os, signal
from pathlib import Path

import torch.distributed as dist

from flexfloor import heartbeat
from flexfloor.models.mixtral import Mixtral
from flexfloor.rollout import generation, migration
from flexfloor.stages import rollout

def fail(rank):
    """Step 2 only, so that one step has shrunk and come back together."""
    if dist.get_rank() == rank and heartbeat._rank.step == 2:
        {end}

def before(call, rank):
    def wrapped(*args, **kwargs):
        fail(rank)
        return call(*args, **kwargs)
    return wrapped

def within(call, rank):
    """The first exchange of a shrink is done, the second one is not."""
    calls = []
    def wrapped(*args, **kwargs):
        calls.append(0)
        if len(calls) % 2 == 0:
            fail(rank)
        return call(*args, **kwargs)
    return wrapped

def shrunk(call, rank):
    """A pass of a group that has shrunk, while others are released and wait."""
    def wrapped(self, *args):
        if self.shrinks:
            fail(rank)
        return call(self, *args)
    return wrapped

WHERE = {{
    "before": (generation.Generation, "_decide", before),
    "within": (migration, "exchange", within),
    "released": (rollout, "meet", before),
    "after": (generation.Generation, "_pass", shrunk),
}}
owner, name, wrap = WHERE["{where}"]
setattr(owner, name, wrap(getattr(owner, name), {rank}))
Path("{pids}").mkdir(exist_ok=True)
Path("{pids}", str(os.getpid())).touch()

class Failing(Mixtral):
    """Mixtral whose module changes what a rank does."""
'''


def failed(
    folder: Path, capfd: pytest.CaptureFixture[str], *words: str, where: str, rank: int, end: str
) -> str:
    """What a run writes whose rank ends so in its second step."""
    module = f"my_{where}_{'kill' if end == KILL else 'raise'}_{rank}_{len(words)}"
    (folder / f"{module}.py").write_text(FAMILY.format(where=where, rank=rank, end=end, pids=folder / "pids"))
    assert run(folder / "run", *ELASTIC, f"model.family={module}:Failing", *words) == 1
    pids = [int(path.name) for path in (folder / "pids").iterdir()]
    assert len(set(pids) - {os.getpid()}) == 2
    until = time.monotonic() + SOON_SECONDS
    while left := [pid for pid in pids if pid != os.getpid() and _runs(pid)]:
        assert time.monotonic() < until, left
        time.sleep(0.1)
    assert not marked()
    return capfd.readouterr().err


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize(
    ("where", "rank"),
    [
        ("within", 1),
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in [("before", 0), ("before", 1), ("within", 0), ("released", 1), ("after", 0)]
        ),
    ],
)
def test_a_killed_rank_is_named_with_step_and_stage(tmp_path, capfd, monkeypatch, where, rank):
    monkeypatch.syspath_prepend(tmp_path)
    message = failed(tmp_path, capfd, where=where, rank=rank, end=KILL)
    [first] = [line for line in message.splitlines() if line.startswith("flexfloor: ")]
    assert re.match(f"flexfloor: rank {rank} of 2 was killed by SIGKILL in step 2, stage rollout", first)
    assert "Traceback" not in message


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_is_killed_after_the_ranks_parted_is_named(tmp_path, capfd, monkeypatch, rank):
    monkeypatch.syspath_prepend(tmp_path)
    detached = ["elastic.policy=idle", "elastic.detach=true"]
    message = failed(tmp_path, capfd, *detached, where="after", rank=rank, end=KILL)
    assert f"flexfloor: rank {rank} of 2 was killed by SIGKILL in step 2, stage rollout" in message
    assert message.count("flexfloor: ") == 1


@pytest.mark.parametrize("rank", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_rank_that_raises_within_a_shrink_is_named(tmp_path, capfd, monkeypatch, rank):
    monkeypatch.syspath_prepend(tmp_path)
    message = failed(tmp_path, capfd, where="within", rank=rank, end=RAISE)
    assert (
        f"flexfloor: rank {rank} of 2: ZeroDivisionError: in the middle\nin step 2, stage rollout" in message
    )
    assert message.count("flexfloor: ") == 1 and "in _decide" in message
