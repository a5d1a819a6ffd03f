"""One attention replica between events: who is live, who waits, and how full the cache is.

Time is counted in passes. A live response gets one token a pass, so that all that changes between two events
grows by the pass and needs no step of its own.

Invariants:
- The live ones were admitted in the order of the queue, and the last of them yields first.
- The cache holds prompt and tokens of every live response, and never more than its room.
- A response that yields keeps its tokens and is computed again, prompt and tokens, when it joins.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass

from flexfloor.schedule.dealing import merged
from flexfloor.simulate.admit import Admit
from flexfloor.simulate.workload import Workload

NEVER = 2**60
"""A pass that does not come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """What admission added to one pass."""

    count: int = 0
    """Responses."""
    tokens: int = 0
    """That are prefilled."""
    stored: int = 0
    """That the cache holds of them in the pass."""


class Replica:
    """One rank's sequences."""

    looks_each_pass = False
    """Whether something may change in any pass, not only where one ends or the cache is full."""

    def __init__(self, work: Workload, queue: Iterable[int], *, room: int, max_live: int, admit: Admit):
        """Args:
        queue: responses in the order of admission.
        room: tokens that the cache may hold.
        """
        self.work, self.room, self.max_live, self.admit = work, room, max_live, admit
        self.waiting: deque[int] = deque(queue)
        self.waiting_tokens = sum(map(self._size, self.waiting))
        """That those who wait would store at once."""
        self.live: dict[int, int] = {}
        """By response, in the order of admission: pass in which it would have had no token."""
        self.base = 0
        """Tokens stored in pass q are num_live x q + base."""
        self.finished = self.preemptions = self.recomputed_tokens = 0
        self._ends: list[tuple[int, int]] = []
        self._siblings: Counter[int] = Counter()

    def stored(self, at: int) -> int:
        """Tokens that the cache holds in pass `at`."""
        return len(self.live) * at + self.base

    def claimed(self, at: int) -> int:
        """Tokens that the cache would hold in pass `at` of all that is unfinished."""
        return self.stored(at) + self.waiting_tokens

    @property
    def unfinished(self) -> int:
        """Responses that are live or wait."""
        return len(self.live) + len(self.waiting)

    @property
    def next_end(self) -> int:
        """Pass in which the next response ends."""
        while self._ends and not self._is_current(*self._ends[0]):
            heapq.heappop(self._ends)
        return self._ends[0][0] if self._ends else NEVER

    @property
    def overflow(self) -> int:
        """First pass in which the cache would hold too much."""
        return (self.room - self.base) // len(self.live) + 1 if self.live else NEVER

    def make_room(self, at: int) -> int:
        """Let the last yield until pass `at` fits; how many did."""
        yielded = 0
        while self.stored(at) > self.room:
            assert len(self.live) > 1, (self.stored(at), self.room)
            self._let_yield(1, at)
            yielded += 1
        return yielded

    def resize(self, room: int, at: int) -> None:
        """Hold so many tokens at most from now on."""
        self.room = room

    def admit_waiting(self, at: int, most_tokens: int) -> Joined:
        """Take from the queue who may join in pass `at`.

        Args:
            most_tokens: to prefill in one pass; one response may have more.
        """
        count = tokens = stored = 0
        while self.waiting and len(self.live) < self.max_live:
            response = self.waiting[0]
            size = self._size(response)
            prefilled = self._prefilled(response)
            if count and tokens + prefilled > most_tokens:
                break
            held = self.stored(at)
            if self.live and not self.admit.fits(len(self.live), held, size, self.room):
                break
            self.waiting.popleft()
            self.waiting_tokens -= size
            done = self.work.parked.pop(response, 0)
            self.recomputed_tokens += prefilled if done else 0
            self._put_in(response, at - done)
            count, tokens, stored = count + 1, tokens + prefilled, stored + size
        return Joined(count=count, tokens=tokens, stored=stored)

    def take_ended(self, at: int) -> list[int]:
        """Responses that got their last token in pass `at`."""
        ended = []
        while self.next_end <= at:
            _, response = heapq.heappop(self._ends)
            self._take_out(response, self.live.pop(response))
            ended.append(response)
        self.finished += len(ended)
        return ended

    def give_up(self, at: int) -> list[tuple[int, int | None]]:
        """All unfinished responses, the live ones first, with their tokens; None = it waits."""
        given: list[tuple[int, int | None]] = [(each, at - begun) for each, begun in self.live.items()]
        given += [(each, None) for each in self.waiting]
        for response, begun in list(self.live.items()):
            self._take_out(response, begun)
        self.live.clear()
        self.waiting.clear()
        self.waiting_tokens = 0
        return given

    def give_first(self, count: int) -> list[int]:
        """So many from the head of the queue, in their order."""
        given = [self.waiting.popleft() for _ in range(count)]
        self.waiting_tokens -= sum(map(self._size, given))
        return given

    def give_last(self, count: int, at: int) -> list[tuple[int, int | None]]:
        """The last of what is unfinished, in their order, with their tokens; None = it waits."""
        waiting = [self.waiting.pop() for _ in range(min(count, len(self.waiting)))][::-1]
        self.waiting_tokens -= sum(map(self._size, waiting))
        live = [self.live.popitem() for _ in range(count - len(waiting))][::-1]
        for response, begun in live:
            self._take_out(response, begun)
        return [*((each, at - begun) for each, begun in live), *((each, None) for each in waiting)]

    def tokens(self, at: int) -> list[tuple[int, int]]:
        """Unfinished responses and the tokens that they have before pass `at`."""
        live = [(response, at - begun) for response, begun in self.live.items()]
        return live + [(response, self.work.parked.get(response, 0)) for response in self.waiting]

    def adopt(self, arrived: Iterable[tuple[int, int | None]], at: int) -> None:
        """Go on with another replica's where it stands; live ones that do not fit wait in front."""
        crowded: list[tuple[int, int]] = []
        queued: list[int] = []
        for response, done in arrived:
            if done is None:
                queued.append(response)
                self.waiting_tokens += self._size(response)
                continue
            fits = self.stored(at) + self.work.prompt_tokens + done <= self.room
            if fits and not crowded and len(self.live) < self.max_live:
                self._put_in(response, at - done)
            else:
                crowded.append((response, done))
        self.waiting = deque(merged([self.waiting, queued]))
        for response, done in reversed(crowded):
            self._wait_in_front(response, done)
        self.preemptions += len(crowded)

    def _size(self, response: int) -> int:
        return self.work.prompt_tokens + self.work.parked.get(response, 0)

    def _prefilled(self, response: int) -> int:
        """A prompt is prefilled once for all of its responses while one of them is live."""
        shares = response not in self.work.parked and self._siblings[self.work.prompt[response]]
        return 0 if shares else self._size(response)

    def _let_yield(self, count: int, at: int) -> None:
        for _ in range(count):
            response, begun = self.live.popitem()
            self._take_out(response, begun)
            self._wait_in_front(response, at - begun)
        self.preemptions += count

    def _wait_in_front(self, response: int, done: int) -> None:
        self.work.parked[response] = done
        self.waiting.appendleft(response)
        self.waiting_tokens += self._size(response)

    def _put_in(self, response: int, begun: int) -> None:
        self.live[response] = begun
        self.base += self.work.prompt_tokens - begun
        self._siblings[self.work.prompt[response]] += 1
        heapq.heappush(self._ends, (begun + self.work.tokens[response] - 1, response))

    def _take_out(self, response: int, begun: int) -> None:
        self.base -= self.work.prompt_tokens - begun
        self._siblings[self.work.prompt[response]] -= 1

    def _is_current(self, end: int, response: int) -> bool:
        begun = self.live.get(response)
        return begun is not None and begun + self.work.tokens[response] - 1 == end
