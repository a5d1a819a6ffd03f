"""The order in which ranks leave an expert group, and a process group for each size on the way.

All groups are made once, at the start, in one order on all ranks: making communicators while others wait
costs seconds and can deadlock. The highest position leaves first, so that every rung is a prefix.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import torch.distributed as dist


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """The rungs of this rank's expert group."""

    position: int
    """Of this rank in its expert group."""
    groups: Mapping[int, dist.ProcessGroup]
    """By size: the group of the first so many positions; the whole group among them. A rank is a member of
    those that are larger than its position."""

    @property
    def size(self) -> int:
        """Ranks of the whole expert group."""
        return max(self.groups)

    @property
    def rungs(self) -> list[int]:
        """Sizes below the whole, ascending."""
        return sorted(self.groups)[:-1]


def make_ladder(group: dist.ProcessGroup, rungs: Sequence[int], *, timeout_seconds: float) -> Ladder:
    """Make the groups; all ranks of all expert groups call it at the same time.

    Args:
        group: this rank's expert group.
        rungs: sizes to make, below the group's; none = every size.
    """
    members: list = [None] * dist.get_world_size()
    dist.all_gather_object(members, tuple(dist.get_process_group_ranks(group)))
    own, groups = members[dist.get_rank()], {group.size(): group}
    for ranks in sorted(set(members)):
        for rung in sorted(rungs or range(1, len(ranks)), reverse=True):
            made = dist.new_group(ranks[:rung], timeout=timedelta(seconds=timeout_seconds))
            if ranks == own:
                groups[rung] = made
    return Ladder(position=group.rank(), groups=groups)
