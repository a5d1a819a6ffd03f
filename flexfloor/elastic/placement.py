"""Which position of an expert group hosts which expert, and what a shrink has to copy.

Owners keep their experts, so a shrink copies those of the leavers only, each once: the fewest bytes there
can be. The home placement, of training, comes back by forgetting the copies. An expert may have several
hosts: a row goes to the nearest. Where every rank that generates hosts all experts, no row leaves its rank.

Invariants:
- Every expert has a host, and each of its hosts is active.
- A host that stays keeps what it hosts.
- A shrink gives an expert a host only if it has none left.
- Among stayers the load of what they take over is balanced: heaviest expert first, to the lightest host
  that has memory for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Hosts of all experts of a group."""

    hosts_of: tuple[tuple[int, ...], ...]
    """By expert: the positions that host it, ascending."""

    def hosted_by(self, position: int) -> list[int]:
        """Experts at `position`, ascending."""
        return [expert for expert, hosts in enumerate(self.hosts_of) if position in hosts]

    def nearest(self, position: int) -> tuple[int, ...]:
        """By expert: the host that rows of `position` go to."""
        return tuple(nearest_host(hosts, position) for hosts in self.hosts_of)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertMove:
    """An expert that a position gets from one that hosted it."""

    expert: int
    source: int
    target: int


def nearest_host(hosts: Sequence[int], position: int) -> int:
    """`position` itself if it is a host, else the next one below it, going round."""
    return max((host for host in hosts if host <= position), default=max(hosts))


def home_placement(num_experts: int, ep_size: int) -> Placement:
    """Neighbouring experts at each position, as Megatron spreads them; `ep_size` divides `num_experts`."""
    assert num_experts % ep_size == 0, (num_experts, ep_size)
    each = num_experts // ep_size
    return Placement(hosts_of=tuple((expert // each,) for expert in range(num_experts)))


def shrunk(
    placement: Placement,
    rung: int,
    load: Sequence[float] | np.ndarray | None = None,
    *,
    hostable: int | None = None,
) -> Placement:
    """The placement on positions below `rung`.

    Args:
        load: of each expert, in any unit; None = all alike.
        hostable: experts that a position has memory for, enough for all; None = any number.
    """
    load = np.ones(len(placement.hosts_of)) if load is None else np.asarray(load, dtype=np.float64)
    stayers = [[host for host in hosts if host < rung] for hosts in placement.hosts_of]
    held, count = np.zeros(rung), [0] * rung
    most = len(stayers) if hostable is None else hostable
    for expert, hosts in enumerate(stayers):
        for host in hosts:
            held[host] += load[expert] / len(hosts)
            count[host] += 1
    homeless = [expert for expert, hosts in enumerate(stayers) if not hosts]
    for expert in sorted(homeless, key=lambda expert: (-load[expert], expert)):
        open_to = [position for position in range(rung) if count[position] < most]
        target = min(open_to, key=lambda position: (held[position], count[position], position))
        stayers[expert] = [target]
        held[target] += load[expert]
        count[target] += 1
    return Placement(hosts_of=tuple(map(tuple, stayers)))


def spread(placement: Placement, positions: Sequence[int]) -> Placement:
    """The placement with a copy of every expert at each of `positions`."""
    return Placement(hosts_of=tuple(tuple(sorted({*hosts, *positions})) for hosts in placement.hosts_of))


def expert_moves(before: Placement, after: Placement) -> list[ExpertMove]:
    """What has to be copied, in the order of experts: each to where it is missing, from the nearest host."""
    return [
        ExpertMove(expert=expert, source=nearest_host(had, target), target=target)
        for expert, (had, has) in enumerate(zip(before.hosts_of, after.hosts_of, strict=True))
        for target in has
        if target not in had
    ]
