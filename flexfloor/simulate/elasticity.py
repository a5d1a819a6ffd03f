"""An expert group that shrinks or parts: the engine's own decisions on what modelled replicas say.

Invariants:
- No rank hosts more than its memory holds beside what it may come to need: `elastic.floor` says so.
- A decision that can change nothing costs next to nothing, since most are such.
"""

from __future__ import annotations

from collections.abc import Sequence

from flexfloor.elastic.floor import Need, RankMemory, fitting_rungs, need_of_parting, need_of_rung
from flexfloor.elastic.placement import Placement, home_placement, shrunk, spread
from flexfloor.schedule.shrink import Standing, Step, detaches
from flexfloor.simulate.decision import Decision


class Elasticity:
    """The rungs of one group and what its ranks host."""

    def __init__(
        self,
        decision: Decision,
        rungs: Sequence[int],
        *,
        memory: RankMemory,
        num_experts: int,
        size: int,
        longest: int,
        kv_tokens_per_rank: int,
        replica_size: int = 1,
        detach: bool = False,
    ):
        """Args:
        rungs: sizes below `size` that may be taken.
        size: replicas of the whole group.
        longest: tokens of the greatest sequence.
        kv_tokens_per_rank: room of a rank's cache in the whole group.
        replica_size: ranks of each replica.
        detach: whether ranks may part once all of them have the memory for all experts.
        """
        assert not (detach and replica_size > 1), replica_size
        self.detach = detach
        self.decision, self.rungs, self.memory = decision, tuple(rungs), memory
        self.replica_size, num_ranks = replica_size, size * replica_size
        self.placement: Placement = home_placement(num_experts, num_ranks)
        self.hosted = [num_experts // num_ranks] * num_ranks
        """Experts of each active rank."""
        self._limits = {"longest": longest, "kv_tokens_per_rank": kv_tokens_per_rank}

    def may_change(self, standings: Sequence[Standing]) -> bool:
        """Whether the decision is worth asking for."""
        rungs, parts = self._open(standings), self.can_part(standings, len(standings))
        return (bool(rungs) or parts) and self.decision.may_change(standings, rungs, parts=parts)

    def decide(self, standings: Sequence[Standing], *, passes: int) -> Step:
        """Replicas to go on with, and whether each by itself.

        Args:
            passes: run since it was last asked.
        """
        rungs = self._open(standings)
        fitting = fitting_rungs(self.memory, self.hosted, standings, rungs, **self._limits)
        may_part = [size for size in (len(standings), *fitting) if self.can_part(standings, size)]
        return self.decision.decide(standings, fitting, passes=passes, may_part=may_part)

    def shrink(self, standings: Sequence[Standing], size: int) -> int:
        """Place the experts on the first `size` replicas; tokens that the cache of each may hold from now."""
        need, ranks = need_of_rung(standings, size, **self._limits), size * self.replica_size
        self.placement = shrunk(self.placement, ranks, hostable=self.memory.hostable(need))
        self.hosted = [len(self.placement.hosted_by(position)) for position in range(ranks)]
        return self._room(need)

    def part(self, standings: Sequence[Standing], going_on: Sequence[int]) -> int:
        """Place all experts on each rank of `going_on`; tokens that the cache of each may hold from now."""
        self.placement = spread(self.placement, going_on)
        self.hosted = [len(self.placement.hosted_by(position)) for position in range(len(standings))]
        return self._room(need_of_parting(standings, len(standings), **self._limits))

    def _room(self, need: Need) -> int:
        used = self.memory.needed(max(self.hosted), need)
        assert used <= self.memory.budget, (used, self.memory.budget)
        return need.kv_tokens

    def can_part(self, standings: Sequence[Standing], size: int) -> bool:
        """Whether so many may go on each by itself."""
        if not self.detach or size == 1:
            return False
        hostable = self.memory.hostable(need_of_parting(standings, size, **self._limits))
        return detaches(standings, hostable=hostable, num_experts=len(self.placement.hosts_of))

    def _open(self, standings: Sequence[Standing]) -> list[int]:
        return [rung for rung in self.rungs if rung < len(standings)]
