"""Keys and values of the live sequences of one rank, in slots of several sizes.

The slots of one size lie in a slab of their own. Live sequences fill the first slots of each slab, so
that a decode step attends over one slice of each without a copy, and short sequences neither hold nor
attend over a long one's padding. Slabs are laid out anew, layer by layer, when sequences join, leave or
outgrow their slots: what is freed goes back to the allocator at once, and while it happens one layer's
part of a slab exists twice.

Shapes: L layers, P planes (keys and values, or latents alone), S slots of a slab, G rows of a token in a
plane (key/value heads), C positions of a slot, D channels of a row.

Invariants:
- Laying out or copying never changes what another sequence stored.
- Every position of a slot in use is finite, also those that nothing was stored at.
- Held bytes are those of the slabs, and the slabs stay within the room.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from flexfloor.rollout.kv_shape import KVShape
from flexfloor.schedule.slots import Room


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One slot of the cache."""

    size_index: int
    """Which slab."""
    slot: int

    def is_not(self, size_index: int, slot: int) -> bool:
        """Whether it is another one."""
        return self.slot != slot or self.size_index != size_index


Run = tuple[Place | None, range]
"""The first of neighbouring places, None for zeros, and the slots that take their contents."""


class KVCache:
    """Slabs of slots, one for each size of the room."""

    def __init__(self, *, shape: KVShape, room: Room, dtype: torch.dtype, device: torch.device):
        self.shape, self.room, self.dtype, self.device = shape, room, dtype, device
        self.num_slots = [0] * len(room.sizes)
        """Of each slab."""
        self.slabs = [
            [self._zeros(0, size) for _ in range(shape.num_layers)] for size in range(len(room.sizes))
        ]
        """By size, then by layer: [P, S, G, C, D], keys before values."""

    @property
    def longest(self) -> int:
        """Tokens of the greatest sequence."""
        return self.room.sizes[-1]

    def bytes_per_token(self) -> int:
        """Bytes that one token of one sequence occupies in all layers."""
        return self.shape.bytes_per_token(self.dtype.itemsize)

    def held_bytes(self) -> int:
        """Bytes that are allocated."""
        return sum(layer.nbytes for slab in self.slabs for layer in slab)

    def arrange(self, sources: Sequence[Sequence[Place | None]]) -> None:
        """Lay out the slabs anew.

        Args:
            sources: for each size, where its slots 0, 1, ... get their contents from: the slot's own, another
                of this size that takes nothing from this size, one of a smaller size, or None for zeros.
        """
        slots = self.room.slab_slots([len(each) for each in sources], self.num_slots)
        changed = []
        # From the greatest size down: contents only go up, and are read before they are overwritten.
        for size in reversed(range(len(slots))):
            is_new = slots[size] != self.num_slots[size]
            runs = _runs(sources[size]) if is_new else _moves(size, _runs(sources[size]))
            if is_new or runs:
                changed.append((size, runs))
        for layer in range(self.shape.num_layers):
            for size, runs in changed:
                self.slabs[size][layer] = self._laid_out(layer, size, slots[size], runs)
        self.num_slots = slots

    def copy_prefix(self, source: Place, target: Place, length: int) -> None:
        """Give the target slot the first `length` positions of the source."""
        pairs = zip(self.slabs[source.size_index], self.slabs[target.size_index], strict=True)
        for theirs, ours in pairs:
            ours[:, target.slot, :, :length] = theirs[:, source.slot, :, :length]

    def kept(self, place: Place | None, num_tokens: int) -> Tensor:
        """[L, P, G, tokens, D] copy of the first tokens at a place; of none without a place."""
        if place is None:
            shape = self.shape
            sizes = (shape.num_layers, shape.num_planes, shape.num_groups, 0, shape.head_dim)
            return torch.empty(sizes, dtype=self.dtype, device=self.device)
        slab = self.slabs[place.size_index]
        return torch.stack([layer[:, place.slot, :, :num_tokens] for layer in slab])

    def keep(self, place: Place, kept: Tensor) -> None:
        """Store at a place what another cache kept, [L, P, G, tokens, D]."""
        for layer, tokens in zip(self.slabs[place.size_index], kept, strict=True):
            layer[:, place.slot, :, : tokens.size(2)] = tokens

    def places(self, size: int, slots_T: Tensor, positions_T: Tensor) -> Tensor:
        """[P, T, G] where `store` puts what it is given of rows at these slots and positions of a slab."""
        planes, slots, groups, capacity, _ = self.slabs[size][0].shape
        plane = torch.arange(planes, device=self.device)[:, None, None] * (slots * groups * capacity)
        group = torch.arange(groups, device=self.device) * capacity
        return plane + (slots_T * (groups * capacity) + positions_T)[None, :, None] + group

    def store(self, layer: int, size: int, places: Tensor, rows_PTGD: Tensor) -> None:
        """Store rows at `places` of a slab: their keys and their values, or their latents."""
        flat = self.slabs[size][layer].view(-1, self.shape.head_dim)
        flat.index_copy_(0, places.view(-1), rows_PTGD.reshape(-1, rows_PTGD.size(-1)))

    def seen(self, layer: int, size: int, num_slots: int, num_positions: int) -> list[Tensor]:
        """Each plane [B, G, positions, D] of a slab's first slots, without a copy."""
        return list(self.slabs[size][layer][:, :num_slots, :, :num_positions])

    def _zeros(self, slots: int, size: int) -> Tensor:
        # Attention weighs unseen positions with zero, which only a finite number survives.
        shape = (self.shape.num_planes, slots, self.shape.num_groups)
        sizes = (*shape, self.room.sizes[size], self.shape.head_dim)
        return torch.zeros(sizes, dtype=self.dtype, device=self.device)

    def _laid_out(self, layer: int, size: int, num_slots: int, runs: Sequence[Run]) -> Tensor:
        slab = self.slabs[size][layer]
        is_new = num_slots != slab.size(1)
        if is_new:
            slab = self._zeros(num_slots, size)
        for place, slots in runs:
            target, filled = slab[:, slots.start : slots.stop], 0
            if place is not None:
                source = self.slabs[place.size_index][layer]
                filled = source.size(3)
                target[:, :, :, :filled] = source[:, place.slot : place.slot + len(slots)]
            if not is_new:
                target[:, :, :, filled:] = 0
        return slab


def _runs(sources: Sequence[Place | None]) -> list[Run]:
    """Slots that get their contents from as many neighbouring slots are one run."""
    runs: list[Run] = []
    for slot, place in enumerate(sources):
        if runs and _goes_on(*runs[-1], place):
            runs[-1] = (runs[-1][0], range(runs[-1][1].start, slot + 1))
        else:
            runs.append((place, range(slot, slot + 1)))
    return runs


def _goes_on(first: Place | None, slots: range, place: Place | None) -> bool:
    if first is None or place is None:
        return first is place
    return not place.is_not(first.size_index, first.slot + len(slots))


def _moves(size: int, runs: Sequence[Run]) -> list[Run]:
    """What changes in a slab that stays, in an order in which nothing is overwritten before it is read."""
    within = [(p, slots) for p, slots in runs if p and p.size_index == size and p.slot != slots.start]
    read = {p.slot + i for p, slots in within if p for i in range(len(slots))}
    assert read.isdisjoint(slot for _, slots in within for slot in slots), (size, within)
    return within + [(p, slots) for p, slots in runs if p is None or p.size_index != size]
