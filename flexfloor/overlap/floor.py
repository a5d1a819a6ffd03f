"""Whether released ranks have the memory to train all experts: bytes, and nothing but arithmetic.

A rank of a lease has no KV cache and no copies for generating. It holds what training keeps, the experts that
come as guests with the sums of their gradients, and the activations of one micro-batch.

Invariants:
- A lease that fits needs no more than the budget on any of its ranks.
- A lease that fits still fits when it grows, which brings no guest to anyone.
- A placement that fits also fits a larger budget.
"""

from __future__ import annotations

from dataclasses import dataclass

from flexfloor.elastic.placement import Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseMemory:
    """Bytes on each rank of a lease."""

    budget: int
    """That all others may come to."""
    weights: int
    """Of the rank's own model, its experts among them."""
    training: int
    """Gradients, state of the optimizer, a reference policy."""
    guest: int
    """One expert that is not the rank's own: weights, sums of gradients, the reference's weights."""
    row: int
    """Activations of one row of a micro-batch, forward and backward; a rank's part of its replica's."""
    rows: int
    """Of a micro-batch on a replica."""

    def needed(self, num_guests: int) -> int:
        """Bytes of a rank with so many guests."""
        return self.weights + self.training + self.rows * self.row + num_guests * self.guest

    def hostable_guests(self) -> int:
        """Guests that a rank can take; below 0 where it cannot even train what it owns."""
        return (self.budget - self.needed(0)) // self.guest


def most_guests(placement: Placement, ep_size: int) -> int:
    """Guests of the rank that has most of them.

    Args:
        placement: of a lease in an expert group of `ep_size` ranks.
    """
    each = len(placement.hosts_of) // ep_size
    hosts = [host for expert, (host,) in enumerate(placement.hosts_of) if host != expert // each]
    return max((hosts.count(host) for host in set(hosts)), default=0)


def fits(memory: LeaseMemory, placement: Placement, ep_size: int) -> bool:
    """Whether every rank of the lease can hold what `placement` gives it."""
    return most_guests(placement, ep_size) <= memory.hostable_guests()
