"""Simulated ranks that part: when they may, what they tell before, and their seconds and books by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from flexfloor.elastic.floor import RankMemory
from flexfloor.ledger.balance import check_tiling
from flexfloor.ledger.metrics import occupation
from flexfloor.ledger.types import State
from flexfloor.schedule.frontier import horizons
from flexfloor.schedule.shrink import Standing, Step
from flexfloor.simulate.admit import Paged
from flexfloor.simulate.clock import clock_of
from flexfloor.simulate.decision import SimpleRule
from flexfloor.simulate.elasticity import Elasticity
from flexfloor.simulate.group import Group
from flexfloor.simulate.hardware import HARDWARE
from flexfloor.simulate.lengths import DrawnLengths, StepLengths
from flexfloor.simulate.outlook import KnownOutlook
from flexfloor.simulate.policies import POLICIES
from flexfloor.simulate.records import RankStory, record_of
from flexfloor.simulate.rules import GroupRules
from flexfloor.simulate.run import simulate
from flexfloor.simulate.telling import Together
from flexfloor.simulate.workload import Workload
from tests.unit.simulate.test_simulated_group import AMPLE
from tests.unit.simulate.test_simulated_policies import scenario


class Costs:
    """A pass takes a second for each rank that shares it, alone half of one; a shrink ten and its sizes."""

    def pass_seconds(self, load):
        return np.asarray(load.ranks, dtype=float)

    def alone_seconds(self, load):
        return np.full(np.shape(load.rows), 0.5)

    def shrink_seconds(self, before, after, moved_tokens):
        return 10.0 + 0.1 * before + 0.01 * after + moved_tokens


def parting(memory=AMPLE):
    """Three ranks with responses of 5, 1 and 8 tokens, which part after two passes: the second has ended."""
    work = Workload(prompt=[0, 1, 2], tokens=[5, 1, 8], prompt_tokens=0, cap=10)
    rules = GroupRules(admit=Paged(), max_live=8, most_joining=1000, interval=2)
    elasticity = Elasticity(
        SimpleRule(policy="idle", sequences_per_rank=1, kv_tokens_per_rank=100),
        [1, 2],
        memory=memory,
        num_experts=3,
        size=3,
        longest=10,
        kv_tokens_per_rank=100,
        detach=True,
    )
    group = Group(work, [[0], [1], [2]], rules, room=100, elasticity=elasticity)
    group.run()
    return group


def test_each_goes_on_to_its_own_end():
    group = parting()
    assert group.parted.after_passes == group.passes == 2 and group.parted.size == 3
    assert {rank: each.log.count for rank, each in group.parted.alone.items()} == {0: 3, 2: 6}
    assert group.ended == {0: 4, 1: 0, 2: 7} and group.rank_passes == 3 * 2 + 3 + 6
    assert group.idle == [[], [(1, 2)], []]


def test_seconds_of_ranks_that_part():
    """2 x 3 s and 10.31 s to part; then 3 and 6 passes of half a second."""
    clock = clock_of(parting(), Costs())
    assert clock.ends.tolist() == [0.0, 3.0, 6.0]
    assert clock.own_ends == pytest.approx({0: 16.31 + 1.5, 2: 16.31 + 3.0})
    assert clock.end == pytest.approx(19.31)
    assert [clock.left(rank) for rank in range(3)] == pytest.approx([17.81, 16.31, 19.31])


class AtOnce:
    """Two ranks are to go on, each by itself."""

    def may_change(self, standings, rungs, *, parts):
        return True

    def decide(self, standings, rungs, *, passes, may_part):
        return Step(size=2, parts=2 in may_part)


def test_a_group_shrinks_and_parts_after_the_same_pass():
    """2 x 4 s; 14.42 s in which two ranks leave with two tokens each; 10.21 s to part; 5 and 6 passes."""
    work = Workload(prompt=[0, 1, 2, 3], tokens=[5, 6, 7, 8], prompt_tokens=0, cap=10)
    rules = GroupRules(admit=Paged(), max_live=8, most_joining=1000, interval=2)
    held = {"memory": AMPLE, "num_experts": 4, "longest": 10, "kv_tokens_per_rank": 100}
    elasticity = Elasticity(AtOnce(), [1, 2], size=4, detach=True, **held)
    group = Group(work, [[0], [1], [2], [3]], rules, room=100, elasticity=elasticity)
    group.run()
    assert group.passes == group.parted.after_passes == 2 and group.parted.size == 2
    clock = clock_of(group, Costs())
    assert clock.ends.tolist() == [0.0, 4.0, 8.0]
    spans = [(each.start_s, each.end_s, each.before, each.after) for each in clock.shrinks]
    assert spans == [(8.0, pytest.approx(22.42), 4, 2), (pytest.approx(22.42), pytest.approx(32.63), 2, 2)]
    assert sorted(clock.own_ends.values()) == pytest.approx([32.63 + 2.5, 32.63 + 3.0])
    assert [clock.left(rank) for rank in (2, 3)] == pytest.approx([22.42, 22.42])
    story = [RankStory(clock=clock, position=rank, idle=group.idle[rank]) for rank in range(4)]
    times = {"opened_s": 0.0, "generated_s": clock.end, "end_s": 40.0, "training": ()}
    check_tiling([record_of(rank, 0, story[rank], **times) for rank in range(4)])


def test_the_ledger_of_ranks_that_part():
    group = parting()
    clock = clock_of(group, Costs())
    records = [
        record_of(
            rank,
            0,
            RankStory(clock=clock, position=rank, idle=group.idle[rank]),
            opened_s=0.0,
            generated_s=clock.end,
            end_s=22.0,
            training=(),
        )
        for rank in range(3)
    ]
    check_tiling(records)
    held = occupation(records)
    assert held.wall_s == pytest.approx(19.31)
    assert held.occupied_s == pytest.approx(17.81 + 16.31 + 19.31)
    assert held.idle_s == pytest.approx(3.0), "the second rank's last pass before they part"
    first = [(each.start_s, each.end_s, each.state) for each in records[0].intervals]
    assert [state for *_, state in first] == [
        State.GENERATING,
        State.SHRINKING,
        State.GENERATING,
        State.WAITING,
        State.TRAINING,
    ]
    assert np.ravel([times[:2] for times in first]) == pytest.approx(
        [0.0, 6.0, 6.0, 16.31, 16.31, 17.81, 17.81, 19.31, 19.31, 22.0]
    )


def test_ranks_part_only_with_memory_for_all_experts():
    """Three experts of 40 bytes beside a cache of 10 and 1 of dense weights."""
    tight = RankMemory(budget=130, dense=1, expert=40, training=0, kv_token=1, row=0, logits=0)
    assert parting(tight).parted is None
    assert parting(replace(tight, budget=131)).parted.after_passes == 2


def standings(*unfinished):
    return [Standing(unfinished=each, kv_tokens=each, finished=0) for each in unfinished]


def test_the_simple_rule_parts_where_no_rank_leaves():
    rule = SimpleRule(policy="greedy", sequences_per_rank=2, kv_tokens_per_rank=100)
    assert rule.decide(standings(2, 2), [1], passes=1, may_part=[2]) == Step(size=2, parts=True)
    assert rule.decide(standings(2, 2), [1], passes=1, may_part=[]) == Step(size=2)
    assert rule.decide(standings(1, 1, 1), [2], passes=1, may_part=[3, 2]) == Step(size=2)


def test_each_rank_tells_of_its_own():
    lengths = StepLengths(
        uids=("a",), prompt=np.zeros(3, int), tokens=np.array([4, 20, 9]), truncated=np.zeros(3, bool)
    )
    far = horizons(20)
    assert far.tolist() == [0, 8, 19, 20]
    [(one, _), (two, _)] = Together(KnownOutlook(lengths, far)).told([[(0, 1), (1, 2)], [(2, 0)]], [[], []])
    # 3 and 18 are left on the first rank, 9 on the second
    assert (one, two) == ((512, 256, 0, 0), (256, 256, 0, 0))


def test_a_group_parts_where_a_run_would():
    fixed = scenario(overlap=False)
    assert fixed.may_part("guided") and not fixed.may_part("greedy") and not fixed.may_part("never")
    assert not scenario().may_part("guided"), "an update that begins early wants ranks that leave in order"
    assert not scenario(tp=2, overlap=False).may_part("guided")
    assert replace(fixed, detach=True).may_part("greedy")
    assert not replace(fixed, detach=False).may_part("guided")


@pytest.mark.parametrize(
    ("hardware", "share", "parts"), [("h200", 0.85, True), ("h100", 0.85, True), ("h100", 0.7, False)]
)
def test_whole_runs_part_where_a_gpu_holds_the_model(hardware, share, parts):
    """Qwen3-30B has 61 GB of weights: an H100 has 68 of its 80 to give, and 56 are not enough."""
    trace = DrawnLengths(num_prompts=16, num_responses=4, median=300, cap=3000)
    alone = scenario(trace=trace, hardware=HARDWARE[hardware], usable_share=share, overlap=False, ep=4)
    [_, step] = simulate(alone, POLICIES["flexfloor"], 2)
    check_tiling(step.records)
    held = occupation(step.records)
    assert (step.detached_ranks > 0) == parts
    together = list(simulate(replace(alone, detach=False), POLICIES["flexfloor"], 2))[1]
    assert together.detached_ranks == 0
    if parts:
        assert step.occupied_s < together.occupied_s, "what parting is for"
        assert max(record.released_s or 0.0 for record in step.records) == pytest.approx(held.wall_s)
