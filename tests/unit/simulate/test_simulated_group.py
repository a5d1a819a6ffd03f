"""One expert group against a simulation that does every pass of every response, one after the other."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
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


@dataclass
class Sequence_:
    """A response as the reference follows it."""

    number: int
    prompt: int
    final: int
    tokens: int = 0


def in_turn(hands):
    """One list in which each stands at the same fraction of the way as in its own."""
    where = {id(each): (k + 0.5) / len(hand) for hand in hands for k, each in enumerate(hand)}
    return sorted((each for hand in hands for each in hand), key=lambda each: where[id(each)])


class Reference:
    """Every pass by itself: lists are walked, nothing is kept from one pass to the next."""

    def __init__(self, work, queues, rules, room, decision, rungs, detach=False):
        self.work, self.rules, self.decision, self.rungs = work, rules, decision, rungs
        self.detach, self.before, self.alone = detach, 0, {}
        self.rooms = [room] * len(queues)
        made = {n: Sequence_(n, work.prompt[n], work.tokens[n]) for queue in queues for n in queue}
        self.waiting = [[made[n] for n in queue] for queue in queues]
        self.live = [[] for _ in queues]
        self.passes, self.ended, self.sizes = [], {}, []
        self.preemptions = 0

    def held(self, rank):
        return sum(self.work.prompt_tokens + each.tokens for each in self.live[rank])

    def run(self):
        while any(self.live) or any(self.waiting):
            joined = [self.admit(rank) for rank in range(len(self.live))]
            if not any(self.live):
                assert not any(self.waiting)
            self.a_pass(joined)
            if len(self.passes) % self.rules.interval == 0:
                self.exchange()
        return self

    def admit(self, rank):
        yielded = []
        while self.held(rank) > self.rooms[rank]:
            yielded.insert(0, self.live[rank].pop())
        self.waiting[rank][:0] = yielded
        self.preemptions += len(yielded)
        joined = []
        while not yielded and self.waiting[rank] and len(self.live[rank]) < self.rules.max_live:
            first = self.waiting[rank][0]
            size = self.work.prompt_tokens + first.tokens
            has_sibling = any(each.prompt == first.prompt for each in self.live[rank])
            prefilled = 0 if has_sibling and first.tokens == 0 else size
            if joined and sum(p for _, p in joined) + prefilled > self.rules.most_joining:
                break
            fits = self.rules.admit.fits(len(self.live[rank]), self.held(rank), size, self.rooms[rank])
            if self.live[rank] and not fits:
                break
            self.live[rank].append(self.waiting[rank].pop(0))
            joined.append((first, prefilled))
        return joined

    def a_pass(self, joined):
        rows, context, joining = [], [], []
        for rank, live in enumerate(self.live):
            assert self.held(rank) <= self.rooms[rank]
            new = [each for each, _ in joined[rank]]
            old = [each for each in live if each not in new]
            rows.append(len(old))
            context.append(sum(self.work.prompt_tokens + each.tokens for each in old))
            joining.append(sum(p for _, p in joined[rank]))
        total = sum(rows) + sum(joining)
        self.passes.append((len(self.live), max(rows), max(joining), max(context), total))
        for live in self.live:
            for each in live:
                each.tokens += 1
            for each in [each for each in live if each.tokens == each.final]:
                live.remove(each)
                self.ended[each.number] = self.before + len(self.passes) - 1

    def exchange(self):
        unfinished = [len(a) + len(b) for a, b in zip(self.live, self.waiting, strict=True)]
        if not any(unfinished) or self.decision is None:
            return
        stored = [
            sum(self.work.prompt_tokens + each.tokens for each in live + waiting)
            for live, waiting in zip(self.live, self.waiting, strict=True)
        ]
        size = self.next_size(unfinished, stored)
        leaving = [self.live[r] + self.waiting[r] for r in range(size, len(self.live))]
        was_live = {each.number for r in range(size, len(self.live)) for each in self.live[r]}
        if not leaving:
            if self.detach and size > 1:
                self.part()
            return
        self.sizes.append((len(self.passes), len(self.live), size))
        del self.live[size:], self.waiting[size:]
        counts = unfinished[:size]
        arriving = [[] for _ in range(size)]
        for sequences in leaving:
            wanted = [0] * size
            for _ in sequences:
                target = counts.index(min(counts))
                counts[target] += 1
                wanted[target] += 1
            # One each in turn, the next round from the other end, until everybody has what they are to get.
            hands, left, turn = [[] for _ in range(size)], list(sequences), 1
            while left:
                for target in range(size)[::turn]:
                    if len(hands[target]) < wanted[target]:
                        hands[target].append(left.pop(0))
                turn = -turn
            for target, hand in enumerate(hands):
                arriving[target].append(hand)
        for rank, hands in enumerate(arriving):
            self.take(rank, in_turn(hands), was_live)

    def take(self, rank, sequences, was_live):
        movers = [each for each in sequences if each.number in was_live]
        fitting = [len(self.live[rank]) + k + 1 <= self.rules.max_live for k in range(len(movers))]
        self.live[rank] += movers[: sum(fitting)]
        queued = [each for each in sequences if each.number not in was_live]
        self.waiting[rank] = movers[sum(fitting) :] + in_turn([self.waiting[rank], queued])
        self.preemptions += len(movers) - sum(fitting)

    def part(self):
        """Even out, one after the other, then each of them by itself, to its end."""
        every = [live + waiting for live, waiting in zip(self.live, self.waiting, strict=True)]
        was_live = {each.number for live in self.live for each in live}
        size, total = len(every), sum(map(len, every))
        ranked = sorted(range(size), key=lambda rank: (-len(every[rank]), rank))
        wanted = [total // size + (rank in ranked[: total % size]) for rank in range(size)]
        hands = [[] for _ in every]
        free = [rank for rank in range(size) for _ in range(wanted[rank] - len(every[rank]))]
        for rank in range(size):
            given = every[rank][wanted[rank] :]
            targets, free = free[: len(given)], free[len(given) :]
            counts = {target: targets.count(target) for target in dict.fromkeys(targets)}
            dealt, turn = {target: [] for target in counts}, 1
            while given:
                for target in list(counts)[::turn]:
                    if len(dealt[target]) < counts[target]:
                        dealt[target].append(given.pop(0))
                turn = -turn
            for target, hand in dealt.items():
                hands[target].append(hand)
            kept = every[rank][: wanted[rank]]
            self.live[rank] = [each for each in kept if each.number in was_live]
            self.waiting[rank] = [each for each in kept if each.number not in was_live]
        for rank, dealt in enumerate(hands):
            self.take(rank, in_turn(dealt), was_live)
        going_on = [rank for rank in range(size) if self.live[rank] or self.waiting[rank]]
        for rank in going_on:
            one = copy(self)
            one.live, one.waiting, one.rooms = [self.live[rank]], [self.waiting[rank]], [self.rooms[rank]]
            one.passes, one.before, one.decision = [], len(self.passes), None
            one.preemptions = 0
            one.run()
            self.alone[rank] = [(len(going_on), *others) for _, *others in one.passes]
            self.preemptions += one.preemptions
        self.live, self.waiting = [[]], [[]]

    def next_size(self, unfinished, stored):
        """By hand: what `idle` and `greedy` mean."""
        size = len(unfinished)
        if self.decision.policy == "idle":
            needed = max((r + 1 for r in range(size) if unfinished[r]), default=1)
        else:
            by_number = -(-sum(unfinished) // self.decision.sequences_per_rank)
            by_cache = -(-sum(stored) // self.decision.kv_tokens_per_rank)
            needed = max(1, by_number, by_cache)
        return min([rung for rung in self.rungs if needed <= rung < size], default=size)


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
