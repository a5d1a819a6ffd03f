"""Keys and values of the live sequences of one rank, each with its own length.

Live sequences fill slots 0 .. n-1, so that a decode step attends over one slice without a copy; when
a sequence leaves, the last one moves into its slot.

Shapes: L layers, S slots, G key/value heads, C positions of a slot, D channels of a head.

Invariants:
- Live slots are dense, and a slot's first `lengths[slot]` positions are its sequence's and no other's.
- Leaving or moving never changes another sequence's keys and values.
- Every position of a live slot is finite, also those that nothing was stored at.
"""

from __future__ import annotations

import torch
from torch import Tensor


class KVCache:
    """Room for `num_slots` sequences of up to `capacity` tokens."""

    def __init__(
        self,
        *,
        num_layers: int,
        num_groups: int,
        head_dim: int,
        num_slots: int,
        capacity: int,
        dtype: torch.dtype,
        device: torch.device,
    ):
        shape = (num_layers, 2, num_slots, num_groups, capacity, head_dim)
        self.pairs = torch.empty(shape, dtype=dtype, device=device)
        """[L, 2, S, G, C, D], keys before values."""
        self.lengths = torch.zeros(num_slots, dtype=torch.long, device=device)
        """[S] tokens stored in each slot."""
        self.num_live = 0
        self._flat = self.pairs.view(num_layers, -1, head_dim)  # [L, 2 S G C, D]

    @property
    def capacity(self) -> int:
        """Positions of a slot."""
        return self.pairs.size(4)

    @property
    def num_free(self) -> int:
        """Sequences that can still join."""
        return self.lengths.numel() - self.num_live

    def bytes_per_token(self) -> int:
        """Bytes that one token of one sequence occupies in all layers."""
        layers, _, _, groups, _, dim = self.pairs.shape
        return 2 * layers * groups * dim * self.pairs.element_size()

    def live_bytes(self) -> int:
        """Bytes that the tokens of live sequences occupy."""
        return int(self.lengths[: self.num_live].sum()) * self.bytes_per_token()

    def join(self, num_sequences: int) -> list[int]:
        """Claim the next slots, empty, and return their numbers."""
        assert num_sequences <= self.num_free, (num_sequences, self.num_free)
        slots = list(range(self.num_live, self.num_live + num_sequences))
        # Attention weighs unseen positions with zero, which only a finite number survives.
        self.pairs[:, :, slots] = 0
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
        self.pairs[:, :, slot] = self.pairs[:, :, last]
        self.lengths[slot] = length
        return last

    def copy_prefix(self, source: int, targets: list[int], length: int) -> None:
        """Give each target slot the first `length` positions of `source`."""
        for target in targets:
            self.pairs[:, :, target, :, :length] = self.pairs[:, :, source, :, :length]
            self.lengths[target] = length

    def places(self, slots_T: Tensor, positions_T: Tensor) -> Tensor:
        """[2, T, G] where `store` puts the keys and values of rows at these slots and positions."""
        _, pairs, slots, groups, capacity, _ = self.pairs.shape
        device = slots_T.device
        kind = torch.arange(pairs, device=device)[:, None, None] * (slots * groups * capacity)
        group = torch.arange(groups, device=device) * capacity
        return kind + (slots_T * (groups * capacity) + positions_T)[None, :, None] + group

    def store(self, layer: int, places: Tensor, key_TGD: Tensor, value_TGD: Tensor) -> None:
        """Store rows' keys and values at `places`."""
        rows = torch.cat((key_TGD, value_TGD)).view(-1, key_TGD.size(-1))
        self._flat[layer].index_copy_(0, places.view(-1), rows)

    def seen(self, layer: int, num_slots: int, num_positions: int) -> tuple[Tensor, Tensor]:
        """Keys and values [B G, positions, D] of the first slots, without a copy."""
        _, _, _, groups, _, dim = self.pairs.shape
        keys, values = self.pairs[layer, :, :num_slots, :, :num_positions]
        shape = (num_slots * groups, num_positions, dim)
        return keys.view(shape), values.view(shape)
