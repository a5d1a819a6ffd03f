"""The order in which ranks leave an expert group, and a process group for each size on the way.

The highest position leaves first, so that every rung is a prefix, and those that a rung released are a
suffix. A group that detaches goes on as groups of one rank each. What leaves is a whole replica, the ranks
that hold one copy of the dense weights between them; positions and rungs count replicas.

Invariants:
- All groups are made once, at the start, in one order on all ranks: making communicators while others wait
  costs seconds and can deadlock.
- Ranks that form several of the groups have one communicator for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import torch.distributed as dist


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """The rungs of this rank's expert group."""

    position: int
    """Of this rank's replica in its expert group."""
    groups: Mapping[int, dist.ProcessGroup]
    """By size: the group of all ranks of the first so many positions; the whole group among them. A rank is a
    member of those that are larger than its position."""
    alone: dist.ProcessGroup | None = None
    """Of this rank by itself; not made = the group cannot detach."""
    suffixes: Mapping[int, dist.ProcessGroup] = field(default_factory=dict)
    """By rung: the group of the positions from it on, which it releases; none = not made. A rank is a
    member of those of rungs up to its position."""

    @property
    def size(self) -> int:
        """Replicas of the whole expert group."""
        return max(self.groups)

    @property
    def replica_size(self) -> int:
        """Ranks of a replica."""
        return self.groups[self.size].size() // self.size

    @property
    def rungs(self) -> list[int]:
        """Sizes below the whole, ascending."""
        return sorted(self.groups)[:-1]


def make_ladder(
    group: dist.ProcessGroup,
    rungs: Sequence[int],
    *,
    timeout_seconds: float,
    replica_size: int = 1,
    alone: bool = False,
    suffixes: bool = False,
) -> Ladder:
    """Make the groups; all ranks of all expert groups call it at the same time.

    Args:
        group: this rank's expert group.
        rungs: sizes to make, below the group's; none = every size.
        replica_size: neighbouring ranks that leave together.
        alone: whether each rank gets a group by itself.
        suffixes: whether those that a rung releases get a group.
    """
    members: list = [None] * dist.get_world_size()
    dist.all_gather_object(members, tuple(dist.get_process_group_ranks(group)))
    own, size = members[dist.get_rank()], group.size() // replica_size
    sizes = sorted(rungs or range(1, size), reverse=True)
    made: dict[tuple[int, ...], dist.ProcessGroup] = {}
    for ranks in sorted(set(members)):
        parts = [ranks[: rung * replica_size] for rung in sizes]
        parts += [ranks[rung * replica_size :] for rung in sizes if suffixes]
        parts += [(rank,) for rank in ranks if alone]
        for part in dict.fromkeys(parts):
            made[part] = dist.new_group(part, timeout=timedelta(seconds=timeout_seconds))
    return Ladder(
        position=group.rank() // replica_size,
        groups={size: group} | {rung: made[own[: rung * replica_size]] for rung in sizes},
        alone=made[dist.get_rank(),] if alone else None,
        suffixes={rung: made[own[rung * replica_size :]] for rung in sizes if suffixes},
    )
