"""What a shrink moves: experts and unfinished sequences, in two batches of sends and receives.

The first carries experts and the sizes of what follows, the second the sequences. Every rank of the group
builds its lists from the same plan, so that both sides of a pair agree on the order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from flexfloor.elastic.placement import ExpertMove
from flexfloor.elastic.transfer import Parcel, exchange
from flexfloor.rollout.handover import Handed, pack, unpack
from flexfloor.schedule.dealing import merged
from flexfloor.schedule.shrink import Handover, hands

Hosted = dict[int, list[tuple[Tensor, ...]]]
"""By expert, for each MoE layer: its parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """What one rank got by a shrink."""

    guests: Hosted
    sequences: list[Handed]
    num_bytes: int
    """Of experts and sequences, received."""


def migrate(
    moves: Sequence[ExpertMove],
    handovers: Sequence[Handover],
    *,
    hosted: Hosted,
    leaving: list[Handed],
    dtype: torch.dtype,
    group: dist.ProcessGroup,
) -> Arrived:
    """Carry out a plan; all ranks of the group as it was before the shrink call it.

    Args:
        hosted: experts that this rank has.
        leaving: this rank's own sequences, if it leaves, in the order in which they are dealt.
        dtype: of weights and of what caches keep.
    """
    position = group.rank()
    some = next(iter(hosted.values()))
    guests = room_for([move.expert for move in moves if move.target == position], some)
    packed = _packed(handovers, leaving, position)
    coming = [each for each in handovers if each.target == position]
    sizes = {each.source: torch.zeros(2, dtype=torch.long, device=some[0][0].device) for each in coming}
    sending = [(target, _sizes(*parts)) for target, parts in packed.items()]
    sending += [p for m in moves if m.source == position for p in _parcels(m.target, hosted[m.expert])]
    receiving = [(source, size) for source, size in sizes.items()]
    receiving += [p for m in moves if m.target == position for p in _parcels(m.source, guests[m.expert])]
    exchange(sending, receiving, group)
    boxes = {source: _boxes(size, dtype) for source, size in sizes.items()}
    exchange(
        [(target, part) for target, parts in packed.items() for part in parts],
        [(source, part) for source, parts in boxes.items() for part in parts],
        group,
    )
    got = [tensor for _, tensor in receiving] + [part for parts in boxes.values() for part in parts]
    return Arrived(
        guests=guests,
        sequences=merged([unpack(*parts) for parts in boxes.values()]),
        num_bytes=sum(tensor.nbytes for tensor in got),
    )


def room_for(experts: Sequence[int], like: list[tuple[Tensor, ...]]) -> Hosted:
    """Weights to be filled; those of a layer lie side by side, as grouped products want them."""
    rooms = [
        tuple(weight.new_empty(len(experts), *weight.shape, requires_grad=False) for weight in weights)
        for weights in like
    ]
    return {
        expert: [tuple(room[place] for room in layer) for layer in rooms]
        for place, expert in enumerate(experts)
    }


def _packed(
    handovers: Sequence[Handover], leaving: list[Handed], position: int
) -> dict[int, tuple[Tensor, Tensor]]:
    """By target: this rank's sequences for it."""
    return {target: pack(hand) for target, hand in hands(handovers, position, leaving)}


def _parcels(position: int, weights: Sequence[tuple[Tensor, ...]]) -> list[Parcel]:
    return [(position, tensor.detach()) for each in weights for tensor in each]


def _sizes(described: Tensor, kept: Tensor) -> Tensor:
    return torch.tensor([described.numel(), kept.numel()], device=kept.device)


def _boxes(size: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    num_described, num_kept = size.tolist()
    described = torch.empty(num_described, dtype=torch.uint8, device=size.device)
    return described, torch.empty(num_kept, dtype=dtype, device=size.device)
