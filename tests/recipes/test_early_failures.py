"""A rank that fails while some train early and others generate: both sides are named, no process is left."""

from __future__ import annotations

import re

import pytest
from failing_run import ELASTIC, KILL, RAISE, marked
from small_run import run

FAMILY = '''
import os, signal, time

import torch.distributed as dist

from flexfloor import heartbeat
from flexfloor.models.mixtral import Mixtral
from flexfloor.overlap.lease import Lease
from flexfloor.overlap.lease_experts import LeaseExperts
from flexfloor.rollout.generation import Generation
from flexfloor.stages.planner import Planner

def fail(rank):
    if dist.get_rank() == rank and heartbeat._rank.step == 2:
        {end}

def before(call, rank):
    def wrapped(*args, **kwargs):
        fail(rank)
        return call(*args, **kwargs)
    return wrapped

def beside(call, rank):
    """A pass of a group that has released a rank, which trains by then."""
    def wrapped(self, *args):
        time.sleep(0.02)
        if self.shrinks and self.passes > 9:
            fail(rank)
        return call(self, *args)
    return wrapped

def lengths(self, prompts, n, step):
    asked = [(prompt, 12 if place else 1) for place, prompt in enumerate(prompts)]
    return {{(prompt.uid, index): tokens for prompt, tokens in asked for index in range(n)}}

Planner.forced_lengths = lengths
Generation._pass = beside(Generation._pass, {rank} if "{where}" == "generating" else -1)
WHERE = {{
    "opening": (LeaseExperts, "open"),
    "training": (Lease, "train"),
    "joining": (LeaseExperts, "settle"),
}}
if "{where}" in WHERE:
    owner, name = WHERE["{where}"]
    setattr(owner, name, before(getattr(owner, name), {rank}))

class Failing(Mixtral):
    """Mixtral whose module changes what a rank does."""
'''
TRAINING = "early_update on positions 1 to 1 while 0 to 0 generate"


def failed(folder, capfd, *, where, rank, end, more=()):
    """The first line of what a run says whose rank ends so in its second step."""
    module = f"early_{where}_{'kill' if end == KILL else 'raise'}_{rank}"
    (folder / f"{module}.py").write_text(FAMILY.format(where=where, rank=rank, end=end))
    words = [*ELASTIC, "overlap=on", f"model.family={module}:Failing", *more]
    assert run(folder / "run", *words) == 1
    assert not marked()
    return capfd.readouterr().err


@pytest.mark.parametrize(
    ("where", "rank", "stage"),
    [
        ("training", 1, TRAINING),
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in [
                ("generating", 0, "rollout"),
                ("opening", 1, TRAINING),
                ("joining", 0, "update"),
                ("joining", 1, "update"),
            ]
        ),
    ],
)
def test_a_killed_rank_is_named_with_what_all_were_doing(tmp_path, capfd, monkeypatch, where, rank, stage):
    monkeypatch.syspath_prepend(tmp_path)
    message = failed(tmp_path, capfd, where=where, rank=rank, end=KILL)
    [first] = [line for line in message.splitlines() if line.startswith("flexfloor: ")]
    assert re.match(f"flexfloor: rank {rank} of 2 was killed by SIGKILL in step 2, stage {stage}", first)
    assert "Traceback" not in message


@pytest.mark.slow
def test_a_rank_of_a_replica_in_a_lease_is_named(tmp_path, capfd, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    more = ["launch.nproc=4", "parallel.ep=4", "parallel.tp=2"]
    message = failed(tmp_path, capfd, where="training", rank=2, end=KILL, more=more)
    [first] = [line for line in message.splitlines() if line.startswith("flexfloor: ")]
    assert re.match(f"flexfloor: rank 2 of 4 was killed by SIGKILL in step 2, stage {TRAINING}", first)


@pytest.mark.slow
def test_a_lease_that_raises_stops_the_step_and_both_sides_are_named(tmp_path, capfd, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    message = failed(tmp_path, capfd, where="training", rank=1, end=RAISE)
    first = "flexfloor: rank 1 of 2: ZeroDivisionError: in the middle"
    assert f"{first}\nin step 2, stage {TRAINING}" in message
