"""The simulator against the engine on two ranks: the same passes of the same loads, and the same shrinks.

Of ranks that part each has passes of its own.
"""

import dataclasses
import functools

import numpy as np
import pytest
import rollout_ranks as ranks
import torch
import torch.distributed as dist

from flexfloor import parallel
from flexfloor.elastic.config import ElasticConfig
from flexfloor.launch import run_ranks
from flexfloor.rollout.config import RolloutConfig
from flexfloor.rollout.engine import RolloutEngine
from flexfloor.rollout.guide import Guidance
from flexfloor.rollout.kv_shape import model_kv_bytes_per_token
from flexfloor.rollout.pass_times import PassTimes
from flexfloor.rollout.types import Request
from flexfloor.schedule.cost import PassLoad, of_one_rank
from flexfloor.schedule.frontier import horizons
from flexfloor.schedule.history import LengthHistory
from flexfloor.schedule.outlook import KnownLengths, LearnedLengths
from flexfloor.simulate.engine_group import EngineSettings, Guiding, engine_group
from flexfloor.simulate.lengths import StepLengths
from flexfloor.simulate.outlook import BelievedOutlook, KnownOutlook
from flexfloor.simulate.workload import Workload

WORLD, NUM_PROMPTS, SIBLINGS, PROMPT_TOKENS, CAP = 2, 8, 3, 7, 50
UIDS = tuple(f"p{index}" for index in range(NUM_PROMPTS))
LENGTHS = np.random.default_rng(7).lognormal(2.2, 1.0, (NUM_PROMPTS, SIBLINGS)).astype(int).clip(1, CAP)
EARLIER = np.random.default_rng(8).lognormal(2.2, 1.0, (NUM_PROMPTS, SIBLINGS)).astype(int).clip(1, CAP)
SKEWED = [list(range(18)), list(range(23, 17, -1))]
"""Three quarters of the responses on the first rank, the others backwards."""
CROSSED = [list(range(0, 24, 2)), list(range(1, 24, 2))]
"""Siblings on both ranks."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """How one rollout goes."""

    policy: str
    queues: list[list[int]]
    kv_tokens: int = 100
    max_live: int = 8
    interval: int = 4
    known: bool | None = None
    """Lengths, to the guidance; None = there is none."""
    rebalances: bool = False
    detach: bool = False
    alone_share: float = 1.0
    """What a pass of a rank that has parted takes, over that of a group of one."""


CASES = {
    "fixed": Case(policy="never", queues=CROSSED),
    "fixed, a wide cache": Case(policy="never", queues=SKEWED, kv_tokens=4000),
    "greedy": Case(policy="greedy", queues=SKEWED),
    "idle": Case(policy="idle", queues=SKEWED, interval=1),
    "guided by history": Case(policy="guided", queues=CROSSED, known=False, rebalances=True),
    "guided by lengths": Case(policy="guided", queues=SKEWED, known=True, rebalances=True),
    "guided from the start": Case(policy="guided", queues=SKEWED, known=True, interval=1, max_live=3),
    "live ones that the stayer has no room for": Case(
        policy="guided", queues=SKEWED, kv_tokens=64, max_live=5, interval=1, known=True, rebalances=True
    ),
    "a stayer that must yield": Case(
        policy="guided", queues=SKEWED, kv_tokens=64, interval=2, known=False, rebalances=True
    ),
    "siblings of which each rank knows its own": Case(
        policy="guided", queues=CROSSED, kv_tokens=64, max_live=12, interval=2, known=False, rebalances=True
    ),
    "guided by history, and parts": Case(
        policy="guided", queues=CROSSED, known=False, rebalances=True, detach=True, alone_share=0.2
    ),
    "guided by lengths, and parts at once": Case(
        policy="guided", queues=SKEWED, known=True, interval=1, max_live=3, detach=True, alone_share=0.1
    ),
    "parts without a need for it, a tight cache": Case(
        policy="idle", queues=CROSSED, kv_tokens=64, interval=8, detach=True
    ),
    "one rank has all, and gives half of it": Case(
        policy="greedy", queues=[list(range(24)), []], interval=1, detach=True
    ),
    "nothing but queues": Case(policy="never", queues=SKEWED[::-1], known=False, rebalances=True),
}


@dataclasses.dataclass(frozen=True)
class Costs:
    """Passes of two ranks are a little quicker than those of one, while there is much to do."""

    pass_error = 0.0

    alone_share: float

    def pass_seconds(self, load: PassLoad):
        return 1.0 + 0.4 * load.rows + 0.01 * load.joining + 0.002 * load.context + 0.3 * load.ranks

    def alone_seconds(self, load: PassLoad):
        return self.alone_share * self.pass_seconds(of_one_rank(load))

    def shrink_seconds(self, before, after, moved_tokens):
        return 2.0 + 0.001 * moved_tokens

    def train_seconds(self, tokens):
        return 0.0


def believed():
    history = LengthHistory(CAP)
    for uid, lengths in zip(UIDS, EARLIER.tolist(), strict=True):
        history.observe(uid, lengths, [length == CAP for length in lengths], step=0)
    return history.predict(UIDS)


def real(case, model, ladder):
    """Loads of all passes by rank, yields, and recomputed tokens of one rollout."""
    loads = []
    note = PassTimes.note
    PassTimes.note = lambda self, *, seconds, **load: loads.append(tuple(load.values()))
    engine = RolloutEngine(
        model,
        group=parallel.groups().ep,
        rollout=RolloutConfig(
            max_live_sequences=case.max_live,
            kv_budget_bytes=case.kv_tokens * model_kv_bytes_per_token(ranks.model_config("float32")),
        ),
        eos_id=ranks.EOS,
        elastic=ElasticConfig(policy=case.policy, interval=case.interval, detach=case.detach),
        ladder=ladder,
    )
    generator = torch.Generator().manual_seed(3)
    prompts = torch.randint(2, ranks.VOCAB, (NUM_PROMPTS, PROMPT_TOKENS), generator=generator).tolist()
    requests = [
        Request(
            uid=UIDS[prompt],
            response_index=index,
            prompt_ids=tuple(prompts[prompt]),
            max_new_tokens=CAP,
            forced_length=int(LENGTHS[prompt, index]),
        )
        for prompt, index in (divmod(number, SIBLINGS) for number in case.queues[dist.get_rank()])
    ]
    _, stats = engine.generate(requests, seed=0, guidance=guidance(case))
    PassTimes.note = note
    told = [None] * WORLD
    dist.all_gather_object(told, (loads, stats))
    every, told = zip(*told, strict=True)
    return every, sum(each.preemptions for each in told), sum(each.recomputed_tokens for each in told)


def guidance(case):
    if case.known is None:
        return None
    known = {(UIDS[p], i): int(LENGTHS[p, i]) for p in range(NUM_PROMPTS) for i in range(SIBLINGS)}
    return Guidance(
        outlook=KnownLengths(known) if case.known else LearnedLengths(believed(), UIDS),
        costs=Costs(case.alone_share),
        objective="occupancy",
        max_slowdown=0.2,
        rebalances=case.rebalances,
    )


def all_real():
    from flexfloor.elastic.ladder import make_ladder

    model = ranks.new_model(WORLD, "float32")
    ladder = make_ladder(parallel.groups().ep, [], timeout_seconds=60, alone=True)
    return {name: real(case, model, ladder) for name, case in CASES.items()}


@functools.cache
def generated():
    """By case, as rank 0 saw it."""
    return run_ranks(all_real, WORLD, threads_per_rank=1, total_timeout_seconds=200)[0]


def simulated(case):
    lengths = StepLengths(
        uids=UIDS,
        prompt=np.repeat(np.arange(NUM_PROMPTS), SIBLINGS),
        tokens=LENGTHS.reshape(-1),
        truncated=LENGTHS.reshape(-1) == CAP,
    )
    work = Workload(
        prompt=lengths.prompt.tolist(), tokens=lengths.tokens.tolist(), prompt_tokens=PROMPT_TOKENS, cap=CAP
    )
    settings = EngineSettings(
        policy=case.policy,
        interval=case.interval,
        kv_tokens=case.kv_tokens,
        max_live=case.max_live,
        num_experts=8,
        detach=case.detach,
    )
    far = horizons(work.longest)
    outlooks = [
        KnownOutlook(lengths, far) if case.known else BelievedOutlook(believed(), lengths, far, CAP)
        for _ in range(WORLD)
    ]
    guiding = Guiding(
        outlooks=outlooks,
        costs=Costs(case.alone_share),
        objective="occupancy",
        max_slowdown=0.2,
        rebalances=case.rebalances,
    )
    group = engine_group(work, case.queues, settings, None if case.known is None else guiding)
    group.run()
    return group


def entries(passes):
    log = passes.load()
    return np.stack([log.ranks, log.rows, log.joining, log.context], axis=1).astype(int).tolist()


@pytest.mark.parametrize("name", CASES)
def test_every_pass_has_the_load_that_was_simulated(name):
    loads, yields, recomputed = generated()[name]
    group = simulated(CASES[name])
    alone = group.parted.alone if group.parted else {}
    for rank, own in enumerate(loads):
        found = entries(group.log) + (entries(alone[rank].log) if rank in alone else [])
        # A rank that has left runs no passes any more.
        assert found[: len(own)] == [list(load) for load in own]
        assert len(own) == len(found) or (rank and group.shrinks), rank
    assert sum(replica.preemptions for replica in group.replicas) == yields
    assert sum(replica.recomputed_tokens for replica in group.replicas) == recomputed


def test_the_cases_have_what_they_are_for():
    groups = {name: simulated(case) for name, case in CASES.items()}
    yields = {name: sum(each.preemptions for each in group.replicas) for name, group in groups.items()}
    assert yields["fixed"] > 0 and yields["greedy"] > 0 and yields["fixed, a wide cache"] == 0
    changed = [name for name, group in groups.items() if group.shrinks or group.parted]
    assert changed == [name for name, case in CASES.items() if case.policy != "never"]
    parted = {name: group.parted.alone for name, group in groups.items() if group.parted}
    assert list(parted) == [name for name, case in CASES.items() if case.detach]
    assert all(len(alone) == 2 for alone in parted.values())
    assert parted["one rank has all, and gives half of it"][1].log.count > 0
    alone = dataclasses.replace(CASES["nothing but queues"], rebalances=False)
    assert groups["nothing but queues"].passes < simulated(alone).passes
