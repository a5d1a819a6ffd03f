"""One expert group from the first pass of a rollout to the last: events between which passes are alike.

All active ranks run the same passes. What changes is where a response joins, ends or yields, and where the
ranks exchange numbers and perhaps shrink; passes in between only grow by a token a live response, so they are
taken at once. Events are counted in passes; `clock` says how long those take.

Invariants:
- Every response ends exactly once, with all of its tokens.
- Nobody's cache ever holds more than its room.
- Leaving out what happens between events changes nothing: a simulation pass by pass finds the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from flexfloor.schedule.dealing import merged
from flexfloor.schedule.rebalance import rebalance
from flexfloor.schedule.shrink import Standing, hand_over, hands
from flexfloor.simulate.elasticity import Elasticity
from flexfloor.simulate.passes import PassLog
from flexfloor.simulate.replica import NEVER, Joined
from flexfloor.simulate.rules import GroupRules
from flexfloor.simulate.telling import Telling
from flexfloor.simulate.workload import Workload

MOST_AT_ONCE = 2048
"""Passes between two events that are written at once; it bounds memory and nothing else."""


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


class Group:
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
        elasticity: how the group shrinks; it does not when not given.
        telling: what its ranks tell of what is left, if they do.
        """
        assert room >= work.longest, (room, work.longest)
        self.work, self.rules, self.room = work, rules, room
        self.elasticity, self.telling = elasticity, telling
        self.replicas = [rules.new_replica(work, queue, room) for queue in queues]
        self.size, self.passes, self.log = len(self.replicas), 0, PassLog()
        self.ended: dict[int, int] = {}
        """By response: pass in which it got its last token."""
        self.shrinks: list[Shrunk] = []
        self.exchanges: list[int] = []
        """Passes run before each exchange in which something might be decided."""
        self.idle: list[list[tuple[int, int]]] = [[] for _ in self.replicas]
        """By rank: (from, to) stretches without a response of its own, in passes run before."""
        self._ended_since: list[list[int]] = [[] for _ in self.replicas]
        self._asked_after = 0
        self._idle_since: list[int | None] = [None] * self.size
        self._live, self._base, self._end, self._overflow = (np.zeros(self.size, np.int64) for _ in range(4))
        self._changed: set[int] = set(range(self.size))
        self.num_responses = sum(replica.unfinished for replica in self.replicas)

    def run(self) -> None:
        """From the first pass to the last."""
        while True:
            joined, again = self._admit()
            live = int(self._live[: self.size].sum())
            if not live:
                break
            count = 1 if joined or again else self._alike()
            self._write(count, live, joined)
            self.passes += count
            self._changed = again
            self._finish()
            if self.passes % self.rules.interval == 0:
                self._exchange()
        left = [replica.unfinished for replica in self.replicas]
        assert not any(left) and len(self.ended) == self.num_responses, (left, len(self.ended))
        self._note_idle(range(self.size), is_last=True)

    def _admit(self) -> tuple[dict[int, Joined], set[int]]:
        """Let responses yield or join where something changed; who joined, and who may go on next pass."""
        joined, again = {}, set()
        for rank in self._changed:
            replica = self.replicas[rank]
            if replica.stored(self.passes) > replica.room:
                replica.make_room(self.passes)
                again.add(rank)
            elif replica.waiting:
                more = replica.admit_waiting(self.passes, self.rules.most_joining)
                if more.count:
                    joined[rank] = more
                    again.add(rank)
            if replica.looks_each_pass:
                again.add(rank)
            self._live[rank], self._base[rank] = len(replica.live), replica.base
            self._end[rank], self._overflow[rank] = replica.next_end, replica.overflow
        self._note_idle(self._changed)
        return joined, again

    def _alike(self) -> int:
        """Passes until something happens."""
        active = slice(self.size)
        end, overflow = int(self._end[active].min()) + 1, int(self._overflow[active].min())
        exchange = NEVER
        if self.rules.rebalances or self.elasticity:
            exchange = (self.passes // self.rules.interval + 1) * self.rules.interval
        return min(end, overflow, exchange, self.passes + MOST_AT_ONCE) - self.passes

    def _write(self, count: int, live: int, joined: dict[int, Joined]) -> None:
        rows, base = self._live[: self.size], self._base[: self.size]
        joining, total = 0, live
        if joined:
            rows, base = rows.copy(), base.copy()
            for rank, more in joined.items():
                rows[rank] -= more.count
                base[rank] += more.count * self.passes - more.stored
                total += more.tokens - more.count
            joining = max(more.tokens for more in joined.values())
        if count == 1:
            context: int | np.ndarray = int((base + rows * self.passes).max())
        else:
            context = (base + rows * np.arange(self.passes, self.passes + count)[:, None]).max(axis=1)
        self.log.write(
            count, ranks=self.size, rows=int(rows.max()), joining=joining, total=total, context=context
        )

    def _finish(self) -> None:
        at = self.passes - 1
        for rank in np.flatnonzero(self._end[: self.size] <= at).tolist():
            ended = self.replicas[rank].take_ended(at)
            self.ended.update((response, at) for response in ended)
            self._ended_since[rank] += ended
            self._changed.add(rank)
        self._changed.update(np.flatnonzero(self._overflow[: self.size] <= self.passes).tolist())

    def _exchange(self) -> None:
        """Active ranks tell each other where they stand, and shrink or take from each other's queues."""
        if self.size > 1 and (self.elasticity or self.rules.rebalances):
            self.exchanges.append(self.passes)
        standings = self._standings()
        if not any(standing.unfinished for standing in standings):
            return
        if self.elasticity and self.elasticity.may_shrink(standings):
            size = self.elasticity.next_size(self._told(standings), passes=self.passes - self._asked_after)
            self._asked_after = self.passes
            if size < self.size:
                self._shrink(standings, size)
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
        return [replace(each, alive=alive) for each, alive in zip(standings, told, strict=True)]

    def _shrink(self, standings: Sequence[Standing], size: int) -> None:
        assert self.elasticity is not None
        room = self.elasticity.shrink(standings, size)
        for replica in self.replicas[:size]:
            replica.resize(room, self.passes)
        leaving = {rank: self.replicas[rank].give_up(self.passes) for rank in range(size, self.size)}
        moved = [done for given in leaving.values() for _, done in given if done is not None]
        arriving: list[list[list[tuple[int, int | None]]]] = [[] for _ in range(size)]
        handovers = hand_over(standings, size)
        for source, given in leaving.items():
            for target, hand in hands(handovers, source, given):
                arriving[target].append(hand)
        for replica, arrived in zip(self.replicas, arriving, strict=False):
            replica.adopt(merged(arrived), self.passes)
        self.shrinks.append(
            Shrunk(
                after_passes=self.passes,
                before=self.size,
                after=size,
                moved_sequences=len(moved),
                moved_tokens=sum(moved) + len(moved) * self.work.prompt_tokens,
            )
        )
        self._note_idle(range(size, self.size), is_last=True)
        self.size, self._changed = size, set(range(size))

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

    def _note_idle(self, ranks: Iterable[int], *, is_last: bool = False) -> None:
        """Write down where a rank's own responses ended, and where it has some again or has left."""
        for rank in ranks:
            since, is_idle = self._idle_since[rank], not self.replicas[rank].unfinished
            if since is None and is_idle:
                self._idle_since[rank] = self.passes
            elif since is not None and (is_last or not is_idle):
                if since < self.passes:
                    self.idle[rank].append((since, self.passes))
                self._idle_since[rank] = None
