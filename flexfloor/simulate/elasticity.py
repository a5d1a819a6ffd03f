"""An expert group that shrinks: the engine's own decisions on what modelled replicas say of themselves.

Invariants:
- No rank hosts more than its memory holds beside what it may come to need: `elastic.floor` says so.
- A decision that changes nothing costs next to nothing, since most do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from flexfloor.elastic.floor import RankMemory, fitting_rungs, need_of_rung
from flexfloor.elastic.placement import Placement, home_placement, shrunk
from flexfloor.schedule.shrink import Standing, next_size


class Decision(Protocol):
    """Whether a group shrinks, as a pure function of what its ranks say."""

    def __call__(self, standings: Sequence[Standing], rungs: Sequence[int]) -> int:
        """Ranks to go on with: one of `rungs`, or as many as are active."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SimpleRule:
    """`schedule.shrink.next_size` with one of its policies."""

    policy: str
    sequences_per_rank: int
    kv_tokens_per_rank: int

    def __call__(self, standings: Sequence[Standing], rungs: Sequence[int]) -> int:
        """Ranks to go on with."""
        return next_size(
            standings,
            rungs,
            policy=self.policy,
            sequences_per_rank=self.sequences_per_rank,
            kv_tokens_per_rank=self.kv_tokens_per_rank,
        )


class Elasticity:
    """The rungs of one group and what its ranks host."""

    def __init__(
        self,
        decide: Decision,
        rungs: Sequence[int],
        *,
        memory: RankMemory,
        num_experts: int,
        size: int,
        longest: int,
        kv_tokens_per_rank: int,
    ):
        """Args:
        rungs: sizes below `size` that may be taken.
        longest: tokens of the greatest sequence.
        kv_tokens_per_rank: room of a rank's cache in the whole group.
        """
        self.decide, self.rungs, self.memory = decide, tuple(rungs), memory
        self.placement: Placement = home_placement(num_experts, size)
        self._limits = {"longest": longest, "kv_tokens_per_rank": kv_tokens_per_rank}

    def next_size(self, standings: Sequence[Standing]) -> int:
        """Ranks to go on with."""
        open_rungs = [rung for rung in self.rungs if rung < len(standings)]
        if not open_rungs or self.decide(standings, open_rungs) == len(standings):
            return len(standings)
        fitting = fitting_rungs(self.memory, self._hosted(len(standings)), standings, open_rungs, **self._limits)
        return self.decide(standings, fitting)

    def shrink(self, standings: Sequence[Standing], size: int) -> int:
        """Place the experts on the first `size` ranks; tokens that the cache of each may hold from now on."""
        need = need_of_rung(standings, size, **self._limits)
        self.placement = shrunk(self.placement, size, hostable=self.memory.hostable(need))
        used = self.memory.needed(max(self._hosted(size)), need)
        assert used <= self.memory.budget, (used, self.memory.budget)
        return need.kv_tokens

    def _hosted(self, size: int) -> list[int]:
        counts = [0] * size
        for host in self.placement.host_of:
            counts[host] += 1
        return counts
