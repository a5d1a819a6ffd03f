"""Tensors between ranks of a group, all sends and receives of a shrink in one batch.

Invariants:
- Both sides of a pair name their tensors in the same order.
- Nothing is staged: tensors go from where they lie to where they are needed.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch.distributed as dist
from torch import Tensor

Parcel = tuple[int, Tensor]
"""(position in the group, contiguous tensor)."""


def exchange(sending: Sequence[Parcel], receiving: Sequence[Parcel], group: dist.ProcessGroup) -> None:
    """Send the one, fill the other; returns when both are done. Ranks with neither need not call."""
    finish(start(sending, receiving, group))


def start(
    sending: Sequence[Parcel], receiving: Sequence[Parcel], group: dist.ProcessGroup
) -> list[dist.Work]:
    """As `exchange`, but returns at once what `finish` waits for; until then tensors stay as they are."""
    operations = [
        dist.P2POp(function, tensor, dist.get_global_rank(group, position), group)
        for function, parcels in ((dist.isend, sending), (dist.irecv, receiving))
        for position, tensor in parcels
        if tensor.numel()
    ]
    return dist.batch_isend_irecv(operations) if operations else []


def finish(started: Sequence[dist.Work]) -> None:
    """Return when what `start` returned is done."""
    for work in started:
        work.wait()
