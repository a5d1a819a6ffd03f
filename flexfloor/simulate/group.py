"""One expert group from the first pass of a rollout to the last, with what is decided at its exchanges.

All active ranks run the same passes (`lockstep`). Every so many of them they exchange numbers, and perhaps
shrink, take from each other's queues, or part, each to go on by itself with all experts.

Invariants:
- Every response ends exactly once, with all of its tokens.
- Nothing moves any more once ranks have parted, and each of those that went on had something unfinished.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from flexfloor.schedule.dealing import merged
from flexfloor.schedule.even_out import even_out, evened
from flexfloor.schedule.rebalance import rebalance
from flexfloor.schedule.shrink import Handover, Standing, hand_over, hands
from flexfloor.simulate.elasticity import Elasticity
from flexfloor.simulate.lockstep import Lockstep
from flexfloor.simulate.replica import NEVER
from flexfloor.simulate.rules import GroupRules
from flexfloor.simulate.telling import Telling
from flexfloor.simulate.workload import Workload

Handed = tuple[int, int | None]
"""A response that moves, and its tokens; None = it waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shrunk:
    """A shrink that took place."""

    after_passes: int
    """Passes that were run before it."""
    before: int
    after: int
    moved_sequences: int
    moved_tokens: int
    """In the caches of those that were live."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parted:
    """Ranks that each went on by itself."""

    after_passes: int
    """Passes that the group had run."""
    size: int
    """Of the group then; those of its ranks with nothing unfinished left it."""
    alone: Mapping[int, Lockstep]
    """By position in the group: those that went on, at least one."""
    moved_tokens: int
    """In the caches of those that were live and evened numbers out, on the rank that took most."""


class Group(Lockstep):
    """Simulates once."""

    def __init__(
        self,
        work: Workload,
        queues: Sequence[Iterable[int]],
        rules: GroupRules,
        *,
        room: int,
        elasticity: Elasticity | None = None,
        telling: Telling | None = None,
    ):
        """Args:
        queues: of each rank, the responses in the order of admission.
        room: tokens that the cache of each rank may hold; at least one sequence.
        elasticity: how the group shrinks or parts; it does neither when not given.
        telling: what its ranks tell of what is left, if they do.
        """
        assert room >= work.longest, (room, work.longest)
        super().__init__(
            [rules.new_replica(work, queue, room) for queue in queues], most_joining=rules.most_joining
        )
        self.work, self.rules, self.room = work, rules, room
        self.elasticity, self.telling = elasticity, telling
        self.shrinks: list[Shrunk] = []
        self.parted: Parted | None = None
        self.exchanges: list[int] = []
        """Passes run before each exchange in which something might be decided."""
        self._ended_since: list[list[int]] = [[] for _ in self.replicas]
        self._asked_after = 0
        self.num_responses = sum(replica.unfinished for replica in self.replicas)

    def run(self) -> None:
        """From the first pass to the last."""
        while not self.parted and self.go_on(self._next_exchange()):
            if self.passes % self.rules.interval == 0:
                self._exchange()
        if self.parted:
            for each in self.parted.alone.values():
                each.run()
                self.ended |= each.ended
        left = [replica.unfinished for replica in self.replicas]
        assert not any(left) and len(self.ended) == self.num_responses, (left, len(self.ended))
        self.note_idle(range(self.size), is_last=True)

    @property
    def rank_passes(self) -> int:
        """Passes, summed over the replicas that ran them."""
        alone = self.parted.alone.values() if self.parted else ()
        return self.log.rank_passes + sum(each.log.count for each in alone)

    def note_ended(self, replica: int, ended: Sequence[int]) -> None:
        """Also until it is told."""
        super().note_ended(replica, ended)
        self._ended_since[replica] += ended

    def _next_exchange(self) -> int:
        if not (self.rules.rebalances or self.elasticity):
            return NEVER
        return (self.passes // self.rules.interval + 1) * self.rules.interval

    def _exchange(self) -> None:
        """Active ranks tell each other where they stand, and shrink, part or take from others' queues."""
        if self.size > 1 and (self.elasticity or self.rules.rebalances):
            self.exchanges.append(self.passes)
        standings = self._standings()
        if not any(standing.unfinished for standing in standings):
            return
        if self.elasticity and self.elasticity.may_change(standings):
            step = self.elasticity.decide(self._told(standings), passes=self.passes - self._asked_after)
            self._asked_after = self.passes
            if step.size < self.size:
                self._shrink(standings, step.size)
                standings = self._standings()
                if step.parts and self.elasticity.can_part(standings, step.size):
                    self._part(standings)
                return
            if step.parts:
                self._part(standings)
                return
        if self.rules.rebalances:
            self._rebalance(standings)

    def _standings(self) -> list[Standing]:
        return [
            Standing(
                unfinished=replica.unfinished,
                kv_tokens=replica.claimed(self.passes),
                finished=replica.finished,
                waiting_tokens=replica.waiting_tokens,
                waiting=len(replica.waiting),
            )
            for replica in self.replicas[: self.size]
        ]

    def _told(self, standings: Sequence[Standing]) -> list[Standing]:
        """With what is left."""
        if self.telling is None:
            return list(standings)
        active = self.replicas[: self.size]
        unfinished = [replica.tokens(self.passes) for replica in active]
        told = self.telling.told(unfinished, self._ended_since[: self.size])
        self._ended_since = [[] for _ in self.replicas]
        return [
            replace(each, alive=alive, deviation=deviation)
            for each, (alive, deviation) in zip(standings, told, strict=True)
        ]

    def _shrink(self, standings: Sequence[Standing], size: int) -> None:
        assert self.elasticity is not None
        room = self.elasticity.shrink(standings, size)
        for replica in self.replicas[:size]:
            replica.resize(room, self.passes)
        leaving = {rank: self.replicas[rank].give_up(self.passes) for rank in range(size, self.size)}
        arriving = self._hand_over(hand_over(standings, size), leaving)
        self.shrinks.append(
            Shrunk(
                after_passes=self.passes,
                before=self.size,
                after=size,
                moved_sequences=sum(done is not None for given in leaving.values() for _, done in given),
                moved_tokens=sum(map(self._stored, arriving)),
            )
        )
        self.note_idle(range(size, self.size), is_last=True)
        self.size, self._changed = size, set(range(size))

    def _part(self, standings: Sequence[Standing]) -> None:
        assert self.elasticity is not None
        handovers = even_out(standings)
        going_on = [position for position, left in enumerate(evened(standings)) if left]
        room = self.elasticity.part(standings, going_on)
        leaving = {}
        for position, replica in enumerate(self.replicas[: self.size]):
            given = sum(each.count for each in handovers if each.source == position)
            leaving[position] = replica.give_last(given, self.passes)
            replica.resize(room, self.passes)
        arriving = self._hand_over(handovers, leaving)
        alone = {
            position: Lockstep(
                [self.replicas[position]],
                most_joining=self.most_joining,
                passes=self.passes,
                ranks=len(going_on),
            )
            for position in going_on
        }
        self.parted = Parted(
            after_passes=self.passes,
            size=self.size,
            alone=alone,
            moved_tokens=max(map(self._stored, arriving)),
        )
        self.note_idle(range(self.size), is_last=True)

    def _hand_over(
        self, handovers: Sequence[Handover], leaving: Mapping[int, Sequence[Handed]]
    ) -> list[list[Handed]]:
        """By position: what it took of what others leave."""
        arriving: list[list[list[Handed]]] = [[] for _ in self.replicas]
        for source, given in leaving.items():
            for target, hand in hands(handovers, source, given):
                arriving[target].append(hand)
        taken = [merged(arrived) for arrived in arriving]
        for replica, own in zip(self.replicas, taken, strict=True):
            if own:
                replica.adopt(own, self.passes)
        return taken

    def _stored(self, handed: Sequence[Handed]) -> int:
        """Tokens that caches hold of what was live."""
        return sum(self.work.prompt_tokens + done for _, done in handed if done is not None)

    def _rebalance(self, standings: Sequence[Standing]) -> None:
        waiting = [standing.waiting for standing in standings]
        if not any(waiting) or all(waiting):
            return
        handovers = rebalance(standings, sequences=self.rules.max_live, kv_tokens=self.room)
        for source in sorted({each.source for each in handovers}):
            count = sum(each.count for each in handovers if each.source == source)
            taken = self.replicas[source].give_first(count)
            for target, hand in hands(handovers, source, taken):
                self.replicas[target].adopt(((response, None) for response in hand), self.passes)
                self._changed |= {source, target}
