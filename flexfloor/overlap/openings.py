"""The leases that an expert group could open in a step, by the rung that releases their ranks.

Positions and rungs count replicas, experts and memory belong to ranks: all ranks of a replica are in a lease.

Invariants:
- A lease that may be opened has the memory for what its placement gives each of its ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flexfloor.elastic.placement import Placement
from flexfloor.overlap.floor import LeaseMemory, fits, most_guests
from flexfloor.overlap.placement import lease_placement


@dataclass(frozen=True, slots=True, kw_only=True)
class Openings:
    """Of one expert group."""

    num_experts: int
    rungs: Sequence[int]
    """Replicas that may go on generating."""
    num_replicas: int
    replica_size: int
    """Ranks of a replica."""
    memory: LeaseMemory
    """Of each rank."""

    @property
    def _ep_size(self) -> int:
        return self.num_replicas * self.replica_size

    def placement(
        self, rung: int, load: Sequence[int] | None = None, *, guests: int | None = None
    ) -> Placement:
        """Who hosts which expert in the lease of the replicas from `rung` on (see `lease_placement`)."""
        first = rung * self.replica_size
        return lease_placement(self.num_experts, self._ep_size, first, load, guests=guests)

    def shortage(self, rung: int) -> str:
        """Why the ranks that `rung` releases cannot hold all experts, in words; empty if they can."""
        placement = self.placement(rung)
        if fits(self.memory, placement, self._ep_size):
            return ""
        needed = self.memory.needed(most_guests(placement, self._ep_size))
        released = self._ep_size - rung * self.replica_size
        return f"{released} released ranks need {needed} bytes each and have {self.memory.budget}"

    @property
    def hostable_guests(self) -> int:
        """Of a rank."""
        return min(self.num_experts, self.memory.hostable_guests())

    @property
    def fewest(self) -> int | None:
        """Released replicas that have the memory for a lease between them; None if no rung releases them."""
        fitting = [rung for rung in self.rungs if not self.shortage(rung)]
        return self.num_replicas - max(fitting) if fitting else None
