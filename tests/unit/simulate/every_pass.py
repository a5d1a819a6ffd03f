"""A simulation that does every pass of every response by itself: what `simulate.group` is compared with."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass


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
