"""One expert group against a simulation that does every pass of every response, one after the other."""

from __future__ import annotations

from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flexfloor.elastic.floor import RankMemory
from flexfloor.simulate.admit import NearFuture, Paged, Reserved
from flexfloor.simulate.decision import SimpleRule
from flexfloor.simulate.elasticity import Elasticity
from flexfloor.simulate.group import Group
from flexfloor.simulate.rules import GroupRules
from flexfloor.simulate.telling import Together
from flexfloor.simulate.workload import Workload
from tests.unit.simulate.every_pass import Reference

AMPLE = RankMemory(budget=10**15, dense=1, expert=1, training=0, kv_token=1, row=1, logits=1)


@st.composite
def groups(draw):
    ranks, n = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    prompts = draw(st.integers(1, 6))
    tokens = draw(st.lists(st.integers(1, 40), min_size=prompts * n, max_size=prompts * n))
    prompt_tokens = draw(st.integers(0, 12))
    work = {
        "prompt": [number // n for number in range(prompts * n)],
        "tokens": tokens,
        "prompt_tokens": prompt_tokens,
        "cap": 40,
    }
    owner = draw(st.lists(st.integers(0, ranks - 1), min_size=len(tokens), max_size=len(tokens)))
    queues = [[number for number, rank in enumerate(owner) if rank == each] for each in range(ranks)]
    longest = prompt_tokens + 40
    room = longest + draw(st.integers(0, 4 * longest))
    admit = draw(st.sampled_from([Paged(), Reserved(longest), NearFuture(40), NearFuture(400)]))
    rules = GroupRules(
        admit=admit,
        max_live=draw(st.integers(1, 8)),
        most_joining=draw(st.sampled_from([1, 15, 60, 1000])),
        interval=draw(st.integers(1, 9)),
    )
    return work, queues, rules, room


def both(work, queues, rules, room, policy=None, sequences=4, detach=False):
    rungs = tuple(range(1, len(queues)))
    decision = policy and SimpleRule(policy=policy, sequences_per_rank=sequences, kv_tokens_per_rank=room)
    elasticity = decision and Elasticity(
        decision,
        rungs,
        memory=AMPLE,
        num_experts=len(queues),
        size=len(queues),
        longest=work["prompt_tokens"] + work["cap"],
        kv_tokens_per_rank=10**6,
        detach=detach,
    )
    group = Group(Workload(**work), queues, rules, room=room, elasticity=elasticity)
    group.run()
    return group, Reference(Workload(**work), queues, rules, room, decision, rungs, detach).run()


def passes_of(group):
    return entries(group.log)


def entries(log):
    load = log.load()
    columns = (load.ranks, load.rows, load.joining, load.context, load.total)
    return [tuple(int(value) for value in entry) for entry in zip(*columns, strict=True)]


@settings(max_examples=300, deadline=None)
@given(groups())
def test_a_fixed_group_does_what_every_pass_by_itself_does(drawn):
    group, reference = both(*drawn)
    assert passes_of(group) == reference.passes
    assert group.ended == reference.ended
    assert sum(replica.preemptions for replica in group.replicas) == reference.preemptions


@settings(max_examples=300, deadline=None)
@given(groups(), st.sampled_from(["idle", "greedy"]), st.integers(1, 6))
def test_a_group_that_shrinks_does_too(drawn, policy, sequences):
    work, queues, rules, _ = drawn
    # The room of stayers follows the memory's floor, of which the reference knows nothing: it never binds.
    group, reference = both(work, queues, rules, 10**6, policy, sequences)
    assert [(each.after_passes, each.before, each.after) for each in group.shrinks] == reference.sizes
    assert passes_of(group) == reference.passes
    assert group.ended == reference.ended


@settings(max_examples=300, deadline=None)
@given(groups(), st.sampled_from(["idle", "greedy"]), st.integers(1, 6))
def test_ranks_that_part_do_too(drawn, policy, sequences):
    work, queues, rules, _ = drawn
    group, reference = both(work, queues, rules, 10**6, policy, sequences, detach=True)
    assert passes_of(group) == reference.passes
    alone = group.parted.alone if group.parted else {}
    assert {rank: entries(each.log) for rank, each in alone.items()} == reference.alone
    assert group.ended == reference.ended
    assert sum(replica.preemptions for replica in group.replicas) == reference.preemptions
    after = len(reference.passes) if alone else None
    assert (group.parted and group.parted.after_passes) == after
    parted = sum(map(len, reference.alone.values()))
    assert group.rank_passes == sum(size for size, *_ in reference.passes) + parted
    assert all(stop <= group.passes for stretches in group.idle for _, stop in stretches)


@settings(max_examples=100, deadline=None)
@given(groups(), st.booleans())
def test_every_response_ends_once_with_its_tokens(drawn, rebalances):
    work, queues, rules, room = drawn
    rules = GroupRules(
        admit=rules.admit,
        max_live=rules.max_live,
        most_joining=rules.most_joining,
        interval=rules.interval,
        rebalances=rebalances,
    )
    group = Group(Workload(**work), queues, rules, room=room)
    group.run()
    assert sorted(group.ended) == list(range(len(work["tokens"])))
    # In each pass a live response gets one token: those that decode, and those that join.
    lengths = [group.ended[number] + 1 for number in group.ended]
    assert all(length >= work["tokens"][number] for number, length in zip(group.ended, lengths, strict=True))
    assert not group.work.parked and not any(replica.live or replica.waiting for replica in group.replicas)
    assert all(replica.base == 0 and replica.waiting_tokens == 0 for replica in group.replicas)


def test_two_waves_by_hand():
    """Slots for two of three responses of 2, 3 and 1 tokens: the third joins in the third pass."""
    work = Workload(prompt=[0, 1, 2], tokens=[2, 3, 1], prompt_tokens=10, cap=10)
    rules = GroupRules(admit=Reserved(20), max_live=8, most_joining=1000)
    group = Group(work, [[0, 1, 2]], rules, room=40)
    group.run()
    # (ranks, decode rows, joining tokens, context of the decode rows, rows of all)
    assert passes_of(group) == [(1, 0, 20, 0, 20), (1, 2, 0, 22, 2), (1, 1, 10, 12, 11)]
    assert group.ended == {0: 1, 1: 2, 2: 2}
    assert group.idle == [[]]


def test_a_full_cache_lets_the_last_yield_and_computes_it_again():
    """Two prompts of 10 in 22 tokens: both fit in passes 0 and 1; in pass 2 the second yields."""
    work = Workload(prompt=[0, 1], tokens=[4, 4], prompt_tokens=10, cap=10)
    rules = GroupRules(admit=Paged(), max_live=8, most_joining=1000)
    group = Group(work, [[0, 1]], rules, room=22)
    group.run()
    # In pass 4 it joins with its prompt and two tokens.
    expected = [(1, 0, 20, 0, 20), (1, 2, 0, 22, 2), (1, 1, 0, 12, 1), (1, 1, 0, 13, 1), (1, 0, 12, 0, 12)]
    assert passes_of(group)[:5] == expected
    assert group.ended == {0: 3, 1: 5}
    assert group.replicas[0].preemptions == 1 and group.replicas[0].recomputed_tokens == 12


def test_a_shrink_by_hand():
    """Two ranks with responses of 2 and 6 tokens, a decision after every second pass: rank 1's moves."""
    work = Workload(prompt=[0, 1], tokens=[2, 6], prompt_tokens=10, cap=10)
    rules = GroupRules(admit=Paged(), max_live=8, most_joining=1000, interval=2)
    rule = SimpleRule(policy="greedy", sequences_per_rank=1, kv_tokens_per_rank=100)
    elasticity = Elasticity(
        rule, [1], memory=AMPLE, num_experts=2, size=2, longest=20, kv_tokens_per_rank=100
    )
    group = Group(work, [[0], [1]], rules, room=100, elasticity=elasticity)
    group.run()
    [shrunk] = group.shrinks
    assert (shrunk.after_passes, shrunk.before, shrunk.after) == (2, 2, 1)
    assert (shrunk.moved_sequences, shrunk.moved_tokens) == (1, 12)
    assert passes_of(group)[2:] == [(1, 1, 0, context, 1) for context in (12, 13, 14, 15)]
    assert group.ended == {0: 1, 1: 5}


class Noted:
    """An outlook that writes down what it is asked."""

    def __init__(self):
        self.asked = []

    def told(self, unfinished, ended):
        self.asked.append((sorted(chain(*unfinished)), sorted(ended)))
        return [((0,), 0)] * len(unfinished)


def test_ranks_tell_what_lives_and_what_ended_since_the_last_time():
    """Responses of 1, 3 and 9 tokens on two ranks, one live at a time each: asked after passes 2, 4, 6, 8."""
    work = Workload(prompt=[0, 1, 2], tokens=[1, 3, 9], prompt_tokens=2, cap=10)
    rules = GroupRules(admit=Paged(), max_live=1, most_joining=1000, interval=2)
    rule = SimpleRule(policy="greedy", sequences_per_rank=1, kv_tokens_per_rank=100)
    never_fits = RankMemory(budget=50, dense=1, expert=40, training=0, kv_token=0, row=0, logits=0)
    elasticity = Elasticity(
        rule, [1], memory=never_fits, num_experts=2, size=2, longest=12, kv_tokens_per_rank=100
    )
    noted = Noted()
    group = Group(work, [[0, 1], [2]], rules, room=100, elasticity=elasticity, telling=Together(noted))
    group.run()
    # After two passes both ranks have one each, more than one rank may have: asked from the fourth on.
    assert noted.asked == [([(2, 4)], [0, 1]), ([(2, 6)], []), ([(2, 8)], [])]
    assert not group.shrinks


def test_the_cache_of_stayers_gets_no_more_than_the_floor_leaves_it():
    """Two experts of 40 bytes and 1 for the rest in 105: 24 are left for a cache that had room for 60."""
    work = Workload(prompt=[0, 1], tokens=[2, 9], prompt_tokens=2, cap=10)
    rules = GroupRules(admit=Paged(), max_live=8, most_joining=1000, interval=2)
    memory = RankMemory(budget=105, dense=1, expert=40, training=0, kv_token=1, row=0, logits=0)
    rule = SimpleRule(policy="greedy", sequences_per_rank=1, kv_tokens_per_rank=60)
    elasticity = Elasticity(
        rule, [1], memory=memory, num_experts=2, size=2, longest=12, kv_tokens_per_rank=60
    )
    group = Group(work, [[0], [1]], rules, room=60, elasticity=elasticity)
    group.run()
    assert [each.after for each in group.shrinks] == [1]
    assert group.replicas[0].room == 12, "one response of the greatest length, which is what is unfinished"


def test_idle_stretches_by_hand():
    """Rank 1 ends after 2 of 5 passes; it stays, for it holds experts."""
    work = Workload(prompt=[0, 1], tokens=[5, 2], prompt_tokens=10, cap=10)
    group = Group(work, [[0], [1]], GroupRules(admit=Paged(), max_live=8, most_joining=1000), room=100)
    group.run()
    assert group.idle == [[], [(2, 5)]]


def test_a_replica_without_a_queue_takes_from_the_others():
    """Rank 0 has four of one token each, one live at a time; rank 1 has none, and takes at each exchange."""
    work = Workload(prompt=[0, 1, 2, 3], tokens=[1, 1, 1, 1], prompt_tokens=1, cap=10)
    rules = GroupRules(admit=Paged(), max_live=1, most_joining=1000, interval=1, rebalances=True)
    group = Group(work, [[0, 1, 2, 3], []], rules, room=100)
    group.run()
    assert group.passes == 3, "0; then 1 and 2 on two ranks; then 3"
    alone = Group(work, [[0, 1, 2, 3], []], GroupRules(admit=Paged(), max_live=1, most_joining=9), room=100)
    alone.run()
    assert alone.passes == 4


@pytest.mark.parametrize("queues", [[[0]], [[0], []], [[], [], [0]]])
def test_one_response_on_any_rank(queues):
    work = Workload(prompt=[0], tokens=[7], prompt_tokens=3, cap=10)
    group = Group(work, queues, GroupRules(admit=Paged(), max_live=8, most_joining=1000), room=13)
    group.run()
    assert group.passes == 7 and group.ended == {0: 6}
