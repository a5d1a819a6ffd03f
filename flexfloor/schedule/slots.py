"""Slots of several sizes for sequences of many lengths: memory arithmetic, counted in tokens.

A sequence sits in the smallest slot that holds it and moves to the next size when it outgrows it. The
slots of one size lie in one slab, so that a decode step attends once for each size in use.

Invariants:
- A sequence of more than `SMALLEST` tokens fills over 3/5 of its slot, 0.48 of one of the greatest length.
- Slabs never hold more tokens than the room, and every sequence has a slot, if the sequences' own slots
  fit in the room.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

SMALLEST = 16
"""Tokens of the smallest slot."""
GROWTH = 1.5
"""From one size to the next: finer sizes waste less of a slot, and attend in more calls."""
GRAIN = 8
"""Sizes are multiples of it, but for the greatest."""
NEAR = 1.25
"""A size this near to the greatest is left out."""


def slot_sizes(longest: int) -> tuple[int, ...]:
    """Sizes in tokens, ascending, for sequences of up to `longest` tokens."""
    sizes, size = [], SMALLEST
    while size * NEAR <= longest:
        sizes.append(size)
        size = -int(-size * GROWTH // GRAIN) * GRAIN
    return (*sizes, longest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What a rank's KV cache may hold."""

    sizes: tuple[int, ...]
    """Tokens of a slot of each size, ascending; no sequence is longer than the last."""
    tokens: int
    """Tokens of all slots together; at least the last size."""

    def size_index(self, tokens: int) -> int:
        """Which size is the smallest that holds so many tokens."""
        return bisect_left(self.sizes, tokens)

    def slot_size(self, tokens: int) -> int:
        """Tokens of the smallest slot that holds so many."""
        return self.sizes[bisect_left(self.sizes, tokens)]

    def slab_slots(self, needed: Sequence[int], held: Sequence[int]) -> list[int]:
        """Slots that the slab of each size should have.

        A little more than needed, so that a slab is not laid out anew whenever a sequence joins, and
        exactly as many where the room is short of that.

        Args:
            needed: sequences of each size; their slots fit in the room.
            held: slots of each slab as it is.
        """
        spare = [_with_spare(*each) for each in zip(needed, held, strict=True)]
        return spare if self._tokens_of(spare) <= self.tokens else list(needed)

    def _tokens_of(self, slots: Sequence[int]) -> int:
        return sum(count * size for count, size in zip(slots, self.sizes, strict=True))


def _with_spare(needed: int, held: int) -> int:
    if not needed:
        return 0
    if needed <= held <= needed + 1 + needed // 2:
        return held
    return needed + needed // 4


def fill_gaps(slots: Sequence[int | None]) -> list[int]:
    """Sequences in the order of their new slots 0, 1, ...: one that can stay in its slot does.

    Args:
        slots: of each sequence where it is now; None for one that comes from elsewhere.
    """
    placed: dict[int, int] = {slot: index for index, slot in enumerate(slots) if slot is not None}
    movers = iter([i for i, slot in enumerate(slots) if slot is None or slot >= len(slots)])
    return [placed[slot] if slot in placed else next(movers) for slot in range(len(slots))]
