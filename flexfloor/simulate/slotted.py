"""One rank as the engine keeps it: a cache of slots, the engine's own admission, prompts known or not.

Slots grow in steps and a response near its cap frees room at a known pass, so that every pass is looked at.
It is meant for comparisons with real rollouts; `replica` counts tokens and is many times faster.

Invariants:
- Who joins, yields and computes a prompt in which pass is what `rollout.batch` does.
- The slots of the live ones never hold more tokens than the room.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from flexfloor.schedule.admission import Admission
from flexfloor.schedule.prediction import near_future
from flexfloor.schedule.slots import Room
from flexfloor.simulate.admit import NearFuture
from flexfloor.simulate.replica import Joined, Replica
from flexfloor.simulate.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claim:
    """`schedule.admission.Claim` of a response."""

    uid: str = ""
    num_prompt_tokens: int
    num_tokens: int
    max_new_tokens: int


class SlottedReplica(Replica):
    """One rank's sequences in slots."""

    looks_each_pass = True

    def __init__(
        self, work: Workload, queue: Iterable[int], *, room: int, max_live: int, sizes: tuple[int, ...]
    ):
        """Args:
        room: tokens that the slots may hold.
        sizes: of slots, in tokens, ascending; the last holds the greatest sequence.
        """
        super().__init__(work, queue, room=room, max_live=max_live, admit=NearFuture(work.cap))
        self._admission = Admission(Room(sizes=sizes, tokens=room), near_future, max_live=max_live)
        self._known: set[int] = set()
        """Prompts whose logits the rank has for siblings that are still to come."""

    def stored(self, at: int) -> int:
        """Tokens of the slots that live responses fill in pass `at`."""
        return sum(self._slot(at - begun) for begun in self.live.values())

    def claimed(self, at: int) -> int:
        """Tokens of the slots that all unfinished responses would fill in pass `at`."""
        parked = self.work.parked
        return self.stored(at) + sum(self._slot(parked.get(each, 0)) for each in self.waiting)

    def admit_waiting(self, at: int, most_tokens: int) -> Joined:
        """Take from the queue who may join in pass `at`; the engine knows no `most_tokens`."""
        waiting = (self._claim(self.work.parked.get(each, 0)) for each in self.waiting)
        count = self._admission.plan(self._claims(at), waiting).num_joining
        holders = {self.work.prompt[each] for each in self.live} & self._known
        tokens = stored = 0
        for response in [self.waiting.popleft() for _ in range(count)]:
            size, done = self._size(response), self.work.parked.pop(response, 0)
            self.waiting_tokens -= size
            prompt = self.work.prompt[response]
            shares = not done and prompt in holders
            if not done:
                holders.add(prompt)
                self._known.add(prompt)
            self.recomputed_tokens += size if done else 0
            tokens, stored = tokens + (0 if shares else size), stored + size
            self._put_in(response, at - done)
        self._forget()
        return Joined(count=count, tokens=tokens, stored=stored)

    def resize(self, room: int, at: int) -> None:
        """Hold so many tokens at most from now on; the last yield until that fits."""
        super().resize(room, at)
        self._admission.room = replace(self._admission.room, tokens=room)
        self._let_yield(len(self.live) - self._admission.num_that_fit(self._claims(at)), at)

    def adopt(self, arrived: Iterable[tuple[int, int | None]], at: int) -> None:
        """Go on with another replica's where it stands; live ones that do not fit wait in front."""
        self._forget()
        arrived = list(arrived)
        live = [(response, done) for response, done in arrived if done is not None]
        claims = [*self._claims(at), *(self._claim(done) for _, done in live)]
        joining = max(0, self._admission.num_that_fit(claims) - len(self.live))
        for response, done in live[:joining]:
            self._put_in(response, at - done)
        super().adopt(((response, None) for response, done in arrived if done is None), at)
        for response, done in reversed(live[joining:]):
            self._wait_in_front(response, done)
        self.preemptions += len(live[joining:])

    def _forget(self) -> None:
        """Logits are kept for new siblings that wait here, as of the last pass."""
        new = {self.work.prompt[each] for each in self.waiting if each not in self.work.parked}
        self._known &= new

    def _claims(self, at: int) -> Sequence[_Claim]:
        return [self._claim(at - begun) for begun in self.live.values()]

    def _claim(self, num_tokens: int) -> _Claim:
        work = self.work
        return _Claim(num_prompt_tokens=work.prompt_tokens, num_tokens=num_tokens, max_new_tokens=work.cap)

    def _slot(self, num_tokens: int) -> int:
        return self._admission.room.slot_size(self.work.prompt_tokens + num_tokens)
