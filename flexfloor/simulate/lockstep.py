"""Replicas that run the same passes: events between which passes are alike.

What changes is where a response joins, ends or yields; passes in between only grow by a token a live
response, so they are taken at once. Events are counted in passes; `clock` says how long those take. A rank
that has parted from its group is one replica by itself.

Invariants:
- Every response ends exactly once, with all of its tokens.
- Nobody's cache ever holds more than its room.
- Leaving out what happens between events changes nothing: a simulation pass by pass finds the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from flexfloor.simulate.passes import PassLog
from flexfloor.simulate.replica import NEVER, Joined, Replica

MOST_AT_ONCE = 2048
"""Passes between two events that are written at once; it bounds memory and nothing else."""


class Lockstep:
    """Runs until nothing is left, or as far as it is asked."""

    def __init__(
        self, replicas: Sequence[Replica], *, most_joining: int, passes: int = 0, ranks: int | None = None
    ):
        """Args:
        most_joining: tokens of joining responses in one pass of a replica; one response may have more.
        passes: that were run before the first one here.
        ranks: that the passes are written down to be of; not given = the replicas.
        """
        self.replicas, self.most_joining = list(replicas), most_joining
        self.size, self.passes, self.log = len(self.replicas), passes, PassLog()
        self.ended: dict[int, int] = {}
        """By response: pass in which it got its last token."""
        self.idle: list[list[tuple[int, int]]] = [[] for _ in self.replicas]
        """By replica: (from, to) stretches without a response of its own, in passes run before."""
        self._ranks = ranks
        self._idle_since: list[int | None] = [None] * self.size
        self._live, self._base, self._end, self._overflow = (np.zeros(self.size, np.int64) for _ in range(4))
        self._changed: set[int] = set(range(self.size))

    def run(self) -> None:
        """To the last pass."""
        while self.go_on(NEVER):
            pass

    def go_on(self, until: int) -> bool:
        """Run passes up to the next event, or until so many were run; False when nobody has anything live."""
        joined, again = self._admit()
        live = int(self._live[: self.size].sum())
        if not live:
            return False
        count = 1 if joined or again else self._alike(until)
        self._write(count, live, joined)
        self.passes += count
        self._changed = again
        self._finish()
        return True

    def note_ended(self, replica: int, ended: Sequence[int]) -> None:
        """Responses of a replica got their last token in the pass before."""
        self.ended.update((response, self.passes - 1) for response in ended)

    def note_idle(self, replicas: Iterable[int], *, is_last: bool = False) -> None:
        """Write down where a replica's own responses ended, and where it has some again or has left."""
        for each in replicas:
            since, is_idle = self._idle_since[each], not self.replicas[each].unfinished
            if since is None and is_idle:
                self._idle_since[each] = self.passes
            elif since is not None and (is_last or not is_idle):
                if since < self.passes:
                    self.idle[each].append((since, self.passes))
                self._idle_since[each] = None

    def _admit(self) -> tuple[dict[int, Joined], set[int]]:
        """Let responses yield or join where something changed; who joined, and who may go on next pass."""
        joined, again = {}, set()
        for each in self._changed:
            replica = self.replicas[each]
            if replica.stored(self.passes) > replica.room:
                replica.make_room(self.passes)
                again.add(each)
            elif replica.waiting:
                more = replica.admit_waiting(self.passes, self.most_joining)
                if more.count:
                    joined[each] = more
                    again.add(each)
            if replica.looks_each_pass:
                again.add(each)
            self._live[each], self._base[each] = len(replica.live), replica.base
            self._end[each], self._overflow[each] = replica.next_end, replica.overflow
        self.note_idle(self._changed)
        return joined, again

    def _alike(self, until: int) -> int:
        """Passes until something happens."""
        active = slice(self.size)
        end, overflow = int(self._end[active].min()) + 1, int(self._overflow[active].min())
        return min(end, overflow, until, self.passes + MOST_AT_ONCE) - self.passes

    def _write(self, count: int, live: int, joined: dict[int, Joined]) -> None:
        rows, base = self._live[: self.size], self._base[: self.size]
        joining, total = 0, live
        if joined:
            rows, base = rows.copy(), base.copy()
            for each, more in joined.items():
                rows[each] -= more.count
                base[each] += more.count * self.passes - more.stored
                total += more.tokens - more.count
            joining = max(more.tokens for more in joined.values())
        if count == 1:
            context: int | np.ndarray = int((base + rows * self.passes).max())
        else:
            context = (base + rows * np.arange(self.passes, self.passes + count)[:, None]).max(axis=1)
        ranks = self.size if self._ranks is None else self._ranks
        self.log.write(
            count, ranks=ranks, rows=int(rows.max()), joining=joining, total=total, context=context
        )

    def _finish(self) -> None:
        at = self.passes - 1
        for each in np.flatnonzero(self._end[: self.size] <= at).tolist():
            self.note_ended(each, self.replicas[each].take_ended(at))
            self._changed.add(each)
        self._changed.update(np.flatnonzero(self._overflow[: self.size] <= self.passes).tolist())
