"""The ranks that hold one copy of the attention and the dense weights between them, as one of them sees it.

During a rollout all ranks of a replica hold the same sequences and run the same rows, each with its own
heads and its own part of each dense matrix. Before routed experts each takes its share of the rows, so that
a row is dispatched once. With one rank to a replica nothing here communicates.

Shapes: T rows of the replica, H hidden.

Invariants:
- What `summed` and `joined` return is the same on all ranks of the replica, to the bit.
- The shares of a replica's ranks are its rows in order, each once, and differ by one row at most.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor


def shares(num_rows: int, size: int) -> list[int]:
    """Rows that each of the `size` ranks of a replica takes before routed experts."""
    each, more = divmod(num_rows, size)
    return [each + (index < more) for index in range(size)]


def agreed(told: Sequence[list[int]], size: int) -> list[list[int]]:
    """What each replica of `size` ranks told, by what each rank did; all of its ranks must have told the
    same."""
    differing = [rank for rank, each in enumerate(told) if each != told[rank - rank % size]]
    assert not differing, f"ranks at {differing} have gone other ways than their replicas: {told}"
    return list(told[::size])


class Replica:
    """This rank's replica, and its place in it."""

    def __init__(self, group: dist.ProcessGroup | None = None):
        """Args:
        group: the tensor-parallel group; None = this rank alone.
        """
        self.group = group
        self.size = 1 if group is None else group.size()
        self.index = 0 if group is None else group.rank()

    @property
    def is_first(self) -> bool:
        """Whether this rank speaks for the replica where it is heard once."""
        return self.index == 0

    def share(self, num_rows: int) -> slice:
        """Which of the replica's rows this rank takes before routed experts."""
        counts = shares(num_rows, self.size)
        first = sum(counts[: self.index])
        return slice(first, first + counts[self.index])

    def summed(self, part: Tensor) -> Tensor:
        """The sum of all ranks' parts, in place of this one's; every rank brings the same shape."""
        if self.size > 1 and part.numel():
            dist.all_reduce(part, group=self.group)
        return part

    def spread(self, share_TH: Tensor, num_rows: int) -> Tensor:
        """[T, ...] that is 0 but for this rank's share of the rows: all ranks' sum is every share."""
        if self.size == 1:
            return share_TH
        whole_TH = share_TH.new_zeros(num_rows, *share_TH.shape[1:])
        whole_TH[self.share(num_rows)] = share_TH
        return whole_TH

    def joined(self, part: Tensor, dim: int) -> Tensor:
        """All ranks' parts side by side along `dim`; every rank brings the same shape."""
        if self.size == 1 or not part.numel():
            return part
        parts = part.new_empty(self.size * part.size(0), *part.shape[1:])
        dist.all_gather_into_tensor(parts, part.contiguous(), group=self.group)
        return torch.cat(parts.chunk(self.size), dim) if dim else parts
