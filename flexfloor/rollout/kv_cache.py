"""Keys and values of the live sequences of one rank, each with its own length.

Live sequences fill slots 0 .. n-1, so that a decode step attends over one slice without a copy; when
a sequence leaves, the last one moves into its slot.

Shapes: L layers, P planes (keys and values, or latents alone), S slots, G rows of a token in a plane
(key/value heads), C positions of a slot, D channels of a row.

Invariants:
- Live slots are dense, and a slot's first `lengths[slot]` positions are its sequence's and no other's.
- Leaving or moving never changes another sequence's keys and values.
- Every position of a live slot is finite, also those that nothing was stored at.
"""

from __future__ import annotations

import torch
from torch import Tensor

from flexfloor.rollout.kv_shape import KVShape


class KVCache:
    """Room for `num_slots` sequences of up to `capacity` tokens."""

    def __init__(
        self,
        *,
        shape: KVShape,
        num_slots: int,
        capacity: int,
        dtype: torch.dtype,
        device: torch.device,
    ):
        self.shape = shape
        sizes = (shape.num_layers, shape.num_planes, num_slots, shape.num_groups, capacity, shape.head_dim)
        self.planes = torch.empty(sizes, dtype=dtype, device=device)
        """[L, P, S, G, C, D], keys before values."""
        self.lengths = torch.zeros(num_slots, dtype=torch.long, device=device)
        """[S] tokens stored in each slot."""
        self.num_live = 0
        self._flat = self.planes.view(shape.num_layers, -1, shape.head_dim)  # [L, P S G C, D]

    @property
    def capacity(self) -> int:
        """Positions of a slot."""
        return self.planes.size(4)

    @property
    def num_free(self) -> int:
        """Sequences that can still join."""
        return self.lengths.numel() - self.num_live

    def bytes_per_token(self) -> int:
        """Bytes that one token of one sequence occupies in all layers."""
        return self.shape.bytes_per_token(self.planes.element_size())

    def live_bytes(self) -> int:
        """Bytes that the tokens of live sequences occupy."""
        return int(self.lengths[: self.num_live].sum()) * self.bytes_per_token()

    def join(self, num_sequences: int) -> list[int]:
        """Claim the next slots, empty, and return their numbers."""
        assert num_sequences <= self.num_free, (num_sequences, self.num_free)
        slots = list(range(self.num_live, self.num_live + num_sequences))
        # Attention weighs unseen positions with zero, which only a finite number survives.
        self.planes[:, :, slots] = 0
        self.lengths[slots] = 0
        self.num_live += num_sequences
        return slots

    def leave(self, slot: int) -> int | None:
        """Free `slot`; return the slot whose sequence moved into it, None when it was the last."""
        assert slot < self.num_live, (slot, self.num_live)
        self.num_live -= 1
        last = self.num_live
        if slot == last:
            return None
        length = int(self.lengths[last])
        self.planes[:, :, slot] = self.planes[:, :, last]
        self.lengths[slot] = length
        return last

    def copy_prefix(self, source: int, targets: list[int], length: int) -> None:
        """Give each target slot the first `length` positions of `source`."""
        for target in targets:
            self.planes[:, :, target, :, :length] = self.planes[:, :, source, :, :length]
            self.lengths[target] = length

    def places(self, slots_T: Tensor, positions_T: Tensor) -> Tensor:
        """[P, T, G] where `store` puts what it is given of rows at these slots and positions."""
        _, planes, slots, groups, capacity, _ = self.planes.shape
        device = slots_T.device
        plane = torch.arange(planes, device=device)[:, None, None] * (slots * groups * capacity)
        group = torch.arange(groups, device=device) * capacity
        return plane + (slots_T * (groups * capacity) + positions_T)[None, :, None] + group

    def store(self, layer: int, places: Tensor, *rows_TGD: Tensor) -> None:
        """Store rows at `places`: their keys and their values, or their latents."""
        rows = rows_TGD[0] if len(rows_TGD) == 1 else torch.cat(rows_TGD)
        self._flat[layer].index_copy_(0, places.view(-1), rows.reshape(-1, rows.size(-1)))

    def seen(self, layer: int, num_slots: int, num_positions: int) -> list[Tensor]:
        """Each plane [B, G, positions, D] of the first slots, without a copy."""
        return list(self.planes[layer, :, :num_slots, :, :num_positions])
