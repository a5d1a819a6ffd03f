"""Which rank of a lease hosts which expert: the mirror image of a group that shrinks.

A lease is the ranks of an expert group from one on. They keep the experts that they own; those of the
ranks that still generate come to them as guests, each to one.

Invariants:
- Every expert has one host, and it is in the lease.
- An expert whose owner is in the lease is hosted by it.
- A lease that grows moves no weights: guests whose owner has joined go home, the others stay where they are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flexfloor.elastic.placement import Placement, home_placement, shrunk


def lease_placement(
    num_experts: int,
    ep_size: int,
    first: int,
    load: Sequence[float] | np.ndarray | None = None,
    *,
    guests: int | None = None,
) -> Placement:
    """The placement on the ranks from `first` on.

    Args:
        ep_size: ranks of the expert group.
        load: of each expert, in any unit, to balance what the guests bring; None = all alike.
        guests: that a rank has memory for, enough for all; None = any number.
    """
    hostable = None if guests is None else num_experts // ep_size + guests
    mirrored = _mirrored(home_placement(num_experts, ep_size), ep_size)
    return _mirrored(shrunk(mirrored, ep_size - first, load, hostable=hostable), ep_size)


def grown(placement: Placement, ep_size: int, first: int) -> Placement:
    """The placement once the lease begins at `first`, which is lower than before."""
    home = home_placement(len(placement.hosts_of), ep_size)
    return Placement(
        hosts_of=tuple(
            own if own[0] >= first else hosts
            for own, hosts in zip(home.hosts_of, placement.hosts_of, strict=True)
        )
    )


def _mirrored(placement: Placement, ep_size: int) -> Placement:
    return Placement(
        hosts_of=tuple(tuple(sorted(ep_size - 1 - host for host in hosts)) for hosts in placement.hosts_of)
    )
