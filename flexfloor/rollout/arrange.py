"""Which slot each sequence of the coming pass takes, and who computes the prompts.

Invariants:
- In the slots of one size those that decode come first, so that they are one slice.
- A sequence that decodes stays in its slot unless it outgrew it or a gap before it is to be filled.
- Those that yielded share nothing: their tokens differ from the prompt on, and one prefill brings all.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from flexfloor.rollout.kv_cache import KVCache, Place
from flexfloor.rollout.live import LiveSequence
from flexfloor.schedule.slots import fill_gaps


def share_prompts(
    decoding: Sequence[LiveSequence], joining: Sequence[LiveSequence]
) -> tuple[list[LiveSequence], list[tuple[LiveSequence, LiveSequence]]]:
    """Those that compute their tokens in the coming pass, and pairs of one that copies and its source.

    A new sequence copies its prompt from a live sibling, else from a new one that joins with it.
    """
    holders = {sequence.uid: sequence for sequence in decoding}
    prefilling, copying = [], []
    for sequence in joining:
        holder = None if sequence.token_ids else holders.setdefault(sequence.uid, sequence)
        if holder is None or holder is sequence:
            prefilling.append(sequence)
        else:
            copying.append((sequence, holder))
    return prefilling, copying


def take_places(
    cache: KVCache,
    decoding: Sequence[LiveSequence],
    prefilling: Sequence[LiveSequence],
    copying: Sequence[LiveSequence],
) -> tuple[list[LiveSequence], list[LiveSequence]]:
    """Lay the cache out for the coming pass.

    Returns: those that decode and those that prefill, in the order of their rows: by size and slot.
    """
    decode_rows = [_in_order(each, size) for size, each in enumerate(_by_size(cache, decoding))]
    prefill_rows = _by_size(cache, prefilling)
    copies = _by_size(cache, copying)
    slabs = [list(chain(*parts)) for parts in zip(decode_rows, prefill_rows, copies, strict=True)]
    cache.arrange([[sequence.place for sequence in slab] for slab in slabs])
    for size, slab in enumerate(slabs):
        for slot, sequence in enumerate(slab):
            if sequence.place is None or sequence.place.is_not(size, slot):
                sequence.place = Place(size_index=size, slot=slot)
    return list(chain.from_iterable(decode_rows)), list(chain.from_iterable(prefill_rows))


def _by_size(cache: KVCache, sequences: Sequence[LiveSequence]) -> list[list[LiveSequence]]:
    found: list[list[LiveSequence]] = [[] for _ in cache.room.sizes]
    for sequence in sequences:
        found[cache.room.size_index(sequence.length)].append(sequence)
    return found


def _in_order(sequences: list[LiveSequence], size: int) -> list[LiveSequence]:
    places = [sequence.place for sequence in sequences]
    slots = [place.slot if place and place.size_index == size else None for place in places]
    return [sequences[index] for index in fill_gaps(slots)]
