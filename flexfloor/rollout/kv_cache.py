"""Keys and values of the live sequences of one rank, each with its own length.

Live sequences fill slots 0 .. n-1, so that a decode step attends over one slice without a copy; when
a sequence leaves, the last one moves into its slot.

Shapes: L layers, G key/value heads, C positions of a slot, D channels of a head.

Invariants:
- Live slots are dense, and a slot's first `lengths[slot]` positions are its sequence's and no other's.
- Leaving or moving never changes another sequence's keys and values.
- Every position of a live slot is finite, also those that nothing was stored at.
"""

from __future__ import annotations

import torch


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
        shape = (num_layers, num_slots, num_groups, capacity, head_dim)
        self.keys = torch.empty(shape, dtype=dtype, device=device)  # [L, slots, G, C, D]
        self.values = torch.empty(shape, dtype=dtype, device=device)
        self.lengths = torch.zeros(num_slots, dtype=torch.long, device=device)
        self.num_live = 0

    @property
    def num_free(self) -> int:
        """Sequences that can still join."""
        return self.lengths.numel() - self.num_live

    def bytes_per_token(self) -> int:
        """Bytes that one token of one sequence occupies in all layers."""
        layers, _, groups, _, dim = self.keys.shape
        return 2 * layers * groups * dim * self.keys.element_size()

    def live_bytes(self) -> int:
        """Bytes that the tokens of live sequences occupy."""
        return int(self.lengths[: self.num_live].sum()) * self.bytes_per_token()

    def join(self, num_sequences: int) -> list[int]:
        """Claim the next slots, empty, and return their numbers."""
        assert num_sequences <= self.num_free, (num_sequences, self.num_free)
        slots = list(range(self.num_live, self.num_live + num_sequences))
        # Attention weighs unseen positions with zero, which only a finite number survives.
        self.keys[:, slots] = 0
        self.values[:, slots] = 0
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
        self.copy_prefix(last, [slot], int(self.lengths[last]))
        return last

    def copy_prefix(self, source: int, targets: list[int], length: int) -> None:
        """Give each target slot the first `length` positions of `source`."""
        for target in targets:
            self.keys[:, target, :, :length] = self.keys[:, source, :, :length]
            self.values[:, target, :, :length] = self.values[:, source, :, :length]
            self.lengths[target] = length
