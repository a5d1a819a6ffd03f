"""What a lease does next, said by its last position, which is in it from the start to the end.

Invariants:
- A sample is ordered to be trained once at most.
- Nothing is ordered to a lease before it is open, and nothing after its end.
- The end is ordered as soon as all expert groups have generated, whatever could still be trained.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flexfloor.elastic.placement import Placement
from flexfloor.overlap.complete import CompleteGroups
from flexfloor.overlap.events import (
    Compare,
    Ended,
    Grow,
    Open,
    Order,
    Over,
    Posted,
    RolloutEvent,
    Scored,
    Shrunk,
    Train,
)
from flexfloor.overlap.placement import grown
from flexfloor.overlap.rounds import next_round
from flexfloor.train.types import Sample


class Foreman:
    """Of one expert group in one step."""

    def __init__(
        self,
        groups: CompleteGroups,
        make_samples: Callable[[Sequence[Scored]], list[Sample]],
        *,
        ep_index: int,
        ep_size: int,
        num_ep_groups: int,
        replica_size: int = 1,
        round_tokens: int,
        compares: bool,
    ):
        """Args:
        groups: prompts that this lease may train.
        make_samples: from a prompt's responses to what is trained of them, maybe nothing.
        replica_size: ranks that a rung counts as one.
        round_tokens: rows of one micro-batch.
        compares: whether samples are compared with another policy before they can be trained.
        """
        self._groups, self._make_samples = groups, make_samples
        self._ep_index, self._ep_size, self._num_ep_groups = ep_index, ep_size, num_ep_groups
        self._round_tokens, self._compares = round_tokens, compares
        self._replica_size, self._num_positions = replica_size, ep_size // replica_size
        self._rung = self._lowest_rung = self._num_positions
        """Of the lease as it is, and of the last shrink."""
        self._opening: Shrunk | None = None
        """The shrink after which generating ranks have sent their experts."""
        self._placement: Placement | None = None
        """In the lease as it is."""
        self._num_ended = 0
        self._uncompared: list[Sample] = []
        self._waiting: list[Sample] = []

    def note(self, events: Sequence[RolloutEvent]) -> None:
        """Take in what became of the rollout."""
        for event in events:
            if isinstance(event, Posted):
                for group in self._groups.add(event.responses):
                    samples = self._make_samples(group)
                    (self._uncompared if self._compares else self._waiting).extend(samples)
            elif isinstance(event, Ended):
                self._num_ended += 1
            elif isinstance(event, Shrunk) and event.ep_index == self._ep_index:
                self._lowest_rung = event.rung
                self._opening = event if event.opened else self._opening

    def compared(self, samples: Sequence[Sample]) -> None:
        """These have been compared, and can be trained."""
        self._waiting.extend(samples)

    def next_order(self) -> Order | None:
        """None while there is nothing to do."""
        if self._opening and self._placement is None:
            # Also at the end: experts are on their way.
            return self._open(self._opening)
        if self._num_ended == self._num_ep_groups:
            return Over()
        if self._placement is None:
            return None
        if self._lowest_rung < self._rung:
            return self._grow(self._placement)
        if self._uncompared:
            samples, self._uncompared = tuple(self._uncompared), []
            return Compare(samples=samples)
        return self._round()

    def _open(self, opening: Shrunk) -> Open:
        assert opening.opened is not None, opening
        self._rung, self._placement = opening.rung, opening.opened
        return Open(rung=self._rung, placement=self._placement)

    def _grow(self, placement: Placement) -> Grow:
        self._rung = self._lowest_rung
        self._placement = grown(placement, self._ep_size, self._rung * self._replica_size)
        return Grow(rung=self._rung, placement=self._placement)

    def _round(self) -> Train | None:
        num_replicas = self._num_positions - self._rung
        samples = next_round(self._waiting, num_replicas=num_replicas, max_tokens=self._round_tokens)
        if not samples:
            return None
        taken = {id(sample) for sample in samples}
        self._waiting = [sample for sample in self._waiting if id(sample) not in taken]
        return Train(samples=tuple(samples))
