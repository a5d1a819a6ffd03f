"""Whether released ranks have the memory to train: bytes, and nothing but arithmetic.

A rank of a lease keeps no cache and none of the rollout's copies. It holds its weights, what training keeps
beside them, a guest's weights, reference and sums of gradients for each expert that it does not own, and
one micro-batch forward and backward.

Invariants:
- A lease that opens under a budget opens under a larger one.
- Ranks that own more of the experts need no more than others: only guests are added to what each holds.
"""

from __future__ import annotations

from dataclasses import dataclass

from flexfloor.elastic.placement import Placement, home_placement

IMBALANCE = 2
"""A rank's experts may get so many times the rows that an even load would give them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseMemory:
    """Bytes on each rank of a lease."""

    budget: int
    """That all others may come to."""
    resident: int
    """Weights, gradients, state of the optimizer, a reference policy."""
    guest: int
    """Of one expert in all MoE layers that the rank does not own: weights, reference, sums of gradients."""
    dense_row: int
    """That forward and backward keep of one row outside of the routed experts."""
    routed_row: int
    """That they keep of it in them."""

    def needed(self, num_guests: int, rows: int) -> int:
        """Bytes with so many guests and a micro-batch of so many rows."""
        return self.resident + num_guests * self.guest + rows * (self.dense_row + IMBALANCE * self.routed_row)


def fits(memory: LeaseMemory, placement: Placement, *, ep_size: int, rows: int) -> bool:
    """Whether every rank of a lease has the memory for what `placement` gives it.

    Args:
        ep_size: ranks of the whole expert group.
        rows: of a micro-batch.
    """
    home = home_placement(len(placement.hosts_of), ep_size)
    guests = [0] * ep_size
    for own, hosts in zip(home.hosts_of, placement.hosts_of, strict=True):
        for host in hosts:
            guests[host] += own != (host,)
    return memory.needed(max(guests), rows) <= memory.budget
