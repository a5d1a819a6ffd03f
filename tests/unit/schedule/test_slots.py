"""Slots of several sizes: how well sequences fill them, and that slabs stay within the room."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexfloor.schedule.slots import SMALLEST, Room, fill_gaps, slot_sizes


@pytest.mark.parametrize(
    ("longest", "sizes"),
    [
        (1, (1,)),
        (19, (19,)),
        (20, (16, 20)),
        (160, (16, 24, 40, 64, 96, 160)),
        (544, (16, 24, 40, 64, 96, 144, 216, 328, 544)),
    ],
)
def test_sizes_grow_by_half_up_to_the_greatest_length(longest, sizes):
    assert slot_sizes(longest) == sizes


@given(st.integers(1, 100_000), st.data())
def test_a_sequence_fills_more_than_three_fifths_of_its_slot(longest, data):
    room = Room(sizes=slot_sizes(longest), tokens=longest)
    length = data.draw(st.integers(1, longest))
    size = room.slot_size(length)
    assert length <= size and list(room.sizes) == sorted(set(room.sizes))
    if size > SMALLEST and len(room.sizes) > 1:
        assert length > (0.48 if size == longest else 0.6) * size
    assert size == room.sizes[room.size_index(length)] == min(s for s in room.sizes if s >= length)


counts = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 60)), min_size=1, max_size=6)


@given(counts, st.integers(0, 500))
def test_slabs_hold_every_sequence_and_never_pass_the_room(found, more):
    sizes = tuple(range(3, 3 + 2 * len(found), 2))
    needed, held = ([each[i] for each in found] for i in (0, 1))
    least = sum(n * size for n, size in zip(needed, sizes, strict=True))
    room = Room(sizes=sizes, tokens=least + more)
    slots = room.slab_slots(needed, held)
    assert all(have >= want for have, want in zip(slots, needed, strict=True))
    assert all(have <= want + 1 + want // 2 for have, want in zip(slots, needed, strict=True))
    assert sum(n * size for n, size in zip(slots, sizes, strict=True)) <= room.tokens
    assert all(have == 0 for have, want in zip(slots, needed, strict=True) if not want)


def test_a_slab_keeps_its_slots_while_a_few_come_and_go():
    room = Room(sizes=(10,), tokens=1000)
    assert room.slab_slots([8], [0]) == [10]
    for needed in (9, 10, 7, 6):
        assert room.slab_slots([needed], [10]) == [10]
    assert room.slab_slots([11], [10]) == [13]
    assert room.slab_slots([5], [10]) == [6]
    assert Room(sizes=(10,), tokens=89).slab_slots([8], [0]) == [8], "no room for spare slots"


@given(st.lists(st.none() | st.integers(0, 20), max_size=12).filter(lambda s: _distinct(s)))
def test_gaps_are_filled_and_who_can_stay_stays(slots):
    order = fill_gaps(slots)
    assert sorted(order) == list(range(len(slots)))
    for index, slot in enumerate(slots):
        if slot is not None and slot < len(slots):
            assert order[slot] == index


def _distinct(slots):
    found = [slot for slot in slots if slot is not None]
    return len(found) == len(set(found))
