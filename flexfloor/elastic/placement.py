"""Which position of an expert group hosts which expert, and what a shrink has to copy.

Owners keep their experts, so a shrink copies those of the leavers only, each once: the fewest bytes there
can be. The home placement, of training, comes back by forgetting the copies.

Invariants:
- Every expert has exactly one host, and it is active.
- A host that stays keeps what it hosts.
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

    host_of: tuple[int, ...]
    """By expert: the position that hosts it."""

    def hosted_by(self, position: int) -> list[int]:
        """Experts at `position`, ascending."""
        return [expert for expert, host in enumerate(self.host_of) if host == position]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertMove:
    """An expert that a stayer gets from the position that hosted it."""

    expert: int
    source: int
    target: int


def home_placement(num_experts: int, ep_size: int) -> Placement:
    """Neighbouring experts at each position, as Megatron spreads them; `ep_size` divides `num_experts`."""
    assert num_experts % ep_size == 0, (num_experts, ep_size)
    each = num_experts // ep_size
    return Placement(host_of=tuple(expert // each for expert in range(num_experts)))


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
    load = np.ones(len(placement.host_of)) if load is None else np.asarray(load, dtype=np.float64)
    hosts = list(placement.host_of)
    held, count = np.zeros(rung), [0] * rung
    most = len(hosts) if hostable is None else hostable
    for expert, host in enumerate(hosts):
        if host < rung:
            held[host] += load[expert]
            count[host] += 1
    homeless = [expert for expert, host in enumerate(hosts) if host >= rung]
    for expert in sorted(homeless, key=lambda expert: (-load[expert], expert)):
        open_to = [position for position in range(rung) if count[position] < most]
        target = min(open_to, key=lambda position: (held[position], count[position], position))
        hosts[expert] = target
        held[target] += load[expert]
        count[target] += 1
    return Placement(host_of=tuple(hosts))


def expert_moves(before: Placement, after: Placement) -> list[ExpertMove]:
    """What has to be copied, in the order of experts."""
    pairs = zip(before.host_of, after.host_of, strict=True)
    return [
        ExpertMove(expert=expert, source=source, target=target)
        for expert, (source, target) in enumerate(pairs)
        if source != target
    ]
