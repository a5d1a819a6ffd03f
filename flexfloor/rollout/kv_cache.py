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
            sources: for each size, where its slots 0, 1, ... get their contents from: a place of the
                same or a smaller size as it is now, each at most once, or None for an empty slot.
        """
        needed = [len(each) for each in sources]
        slots = self.room.slab_slots(needed, self.num_slots)
        changed = [
            size
            for size, each in enumerate(sources)
            if slots[size] != self.num_slots[size]
            or any(place is None or place.is_not(size, slot) for slot, place in enumerate(each))
        ]
        for layer in range(self.shape.num_layers):
            # From the greatest size down: contents only go up, and are read before they are overwritten.
            for size in reversed(changed):
                self._arrange_slab(layer, size, sources[size], slots[size])
        self.num_slots = slots

    def copy_prefix(self, source: Place, target: Place, length: int) -> None:
        """Give the target slot the first `length` positions of the source."""
        pairs = zip(self.slabs[source.size_index], self.slabs[target.size_index], strict=True)
        for theirs, ours in pairs:
            ours[:, target.slot, :, :length] = theirs[:, source.slot, :, :length]

    def places(self, size: int, slots_T: Tensor, positions_T: Tensor) -> Tensor:
        """[P, T, G] where `store` puts what it is given of rows at these slots and positions of a slab."""
        planes, slots, groups, capacity, _ = self.slabs[size][0].shape
        plane = torch.arange(planes, device=self.device)[:, None, None] * (slots * groups * capacity)
        group = torch.arange(groups, device=self.device) * capacity
        return plane + (slots_T * (groups * capacity) + positions_T)[None, :, None] + group

    def store(self, layer: int, size: int, places: Tensor, *rows_TGD: Tensor) -> None:
        """Store rows at `places` of a slab: their keys and their values, or their latents."""
        rows = rows_TGD[0] if len(rows_TGD) == 1 else torch.cat(rows_TGD)
        flat = self.slabs[size][layer].view(-1, self.shape.head_dim)
        flat.index_copy_(0, places.view(-1), rows.reshape(-1, rows.size(-1)))

    def seen(self, layer: int, size: int, num_slots: int, num_positions: int) -> list[Tensor]:
        """Each plane [B, G, positions, D] of a slab's first slots, without a copy."""
        return list(self.slabs[size][layer][:, :num_slots, :, :num_positions])

    def _zeros(self, slots: int, size: int) -> Tensor:
        # Attention weighs unseen positions with zero, which only a finite number survives.
        shape = (self.shape.num_planes, slots, self.shape.num_groups)
        sizes = (*shape, self.room.sizes[size], self.shape.head_dim)
        return torch.zeros(sizes, dtype=self.dtype, device=self.device)

    def _arrange_slab(self, layer: int, size: int, sources: Sequence[Place | None], num_slots: int) -> None:
        old = self.slabs[size][layer]
        new = old if num_slots == old.size(1) else self._zeros(num_slots, size)
        kept: dict[int, list[tuple[int, int]]] = {}
        for slot, place in enumerate(sources):
            if place is not None and (new is not old or place.is_not(size, slot)):
                kept.setdefault(place.size_index, []).append((slot, place.slot))
        # From the same size first: what arrives from smaller ones may take the slots that these leave.
        for origin in sorted(kept, reverse=True):
            targets, origins = (list(each) for each in zip(*kept[origin], strict=True))
            contents = self.slabs[origin][layer][:, origins]
            if new is old and origin != size:
                new[:, targets] = 0
            new[:, targets, :, : self.room.sizes[origin]] = contents
        if new is old and None in sources:
            new[:, [slot for slot, place in enumerate(sources) if place is None]] = 0
        self.slabs[size][layer] = new
