import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flexfloor.rollout.kv_cache import KVCache, Place
from flexfloor.rollout.kv_shape import heads_shape, latent_shape
from flexfloor.schedule.slots import Room, fill_gaps

SIZES = (2, 3, 6)
TOKEN_BYTES = 2 * 2 * 1 * 2 * 8
"""Two layers, keys and values, one head of two channels, float64."""


def new_cache(tokens=1000, shape=None, dtype=torch.float64, sizes=SIZES):
    return KVCache(
        shape=shape or heads_shape(num_layers=2, num_groups=1, head_dim=2),
        room=Room(sizes=sizes, tokens=tokens),
        dtype=dtype,
        device=torch.device("cpu"),
    )


def place(size, slot):
    return Place(size_index=size, slot=slot)


def store(cache, where, position, value):
    places = cache.places(where.size_index, torch.tensor([where.slot]), torch.tensor([position]))
    for layer in range(2):
        row = torch.full((1, 1, 2), value + layer, dtype=torch.float64)
        cache.store(layer, where.size_index, places, torch.stack((row, -row)))


def held_values(cache, where, count):
    """What the cache holds of a sequence, checked to be the same in all layers and planes."""
    for layer in range(2):
        keys, values = cache.seen(layer, where.size_index, where.slot + 1, count)
        assert keys[where.slot].equal(-values[where.slot])
        yield [value - layer for value in keys[where.slot, 0, :, 0].tolist()]


def laid_out(cache, lengths, places):
    """New places of sequences of these coming lengths; those that hold nothing yet, with None, come last."""
    sources, moved = [], {}
    for size in range(len(SIZES)):
        here = [i for i, length in enumerate(lengths) if cache.room.size_index(length) == size]
        old = [i for i in here if places[i]]
        slots = [places[i].slot if places[i].size_index == size else None for i in old]
        order = [old[i] for i in fill_gaps(slots)] + [i for i in here if not places[i]]
        sources.append([places[i] for i in order])
        moved |= {i: place(size, slot) for slot, i in enumerate(order)}
    cache.arrange(sources)
    return [moved[i] for i in range(len(lengths))]


MOVES = st.lists(st.tuples(st.sampled_from(["join", "leave", "grow", "grow", "copy"]), st.integers(0, 9)))


@settings(max_examples=200, deadline=None)
@given(passes=st.lists(MOVES, max_size=12), tokens=st.sampled_from([20, 1000]))
def test_sequences_keep_what_they_stored_and_bytes_are_those_of_the_tensors(passes, tokens):
    cache, contents, places, fresh = new_cache(tokens), [], [], iter(range(1, 10_000))
    for moves in passes:
        grown, copied = set(), {}
        for move, pick in moves:
            if move in ("join", "copy"):
                if move == "copy" and places and places[pick % len(places)] is not None:
                    copied[len(contents)] = pick % len(contents)
                contents.append([])
                places.append(None)
            elif contents and move == "grow" and len(contents[pick % len(contents)]) < 6:
                grown.add(pick % len(contents))
        gone = {pick % len(contents) for move, pick in moves if move == "leave" and contents}
        gone -= set(copied.values())
        lengths = [max(1, len(c) + (i in grown)) for i, c in enumerate(contents)]
        for i in copied:
            lengths[i] = max(1, len(contents[copied[i]]))
        staying = [i for i in range(len(contents)) if i not in gone]
        while sum(cache.room.slot_size(lengths[i]) for i in staying) > tokens:
            staying.pop()
        before = [len(content) for content in contents]
        found = laid_out(cache, [lengths[i] for i in staying], [places[i] for i in staying])
        now = dict(zip(staying, found, strict=True))
        for i in staying:
            if i in copied and copied[i] in now:
                source = copied[i]
                cache.copy_prefix(now[source], now[i], before[source])
                contents[i] = contents[source][: before[source]]
            elif i in grown:
                value = float(next(fresh))
                store(cache, now[i], len(contents[i]), value)
                contents[i].append(value)
        contents, places = [contents[i] for i in staying], found
        for where, expected in zip(places, contents, strict=True):
            assert all(values == expected for values in held_values(cache, where, len(expected)))
        tensors = [layer for slab in cache.slabs for layer in slab]
        assert all(layer.isfinite().all() for layer in tensors)
        assert cache.held_bytes() == sum(layer.untyped_storage().nbytes() for layer in tensors)
        assert cache.held_bytes() <= tokens * TOKEN_BYTES


def test_a_new_sequence_finds_nothing_of_an_old_one():
    cache = new_cache()
    cache.arrange([[None], [None], []])
    for slab in cache.slabs:
        for layer in slab:
            layer[0], layer[1] = float("nan"), float("inf")
    cache.arrange([[None], [place(0, 0)], []])
    keys, values = cache.seen(0, 0, 1, 2)
    assert keys.count_nonzero() == values.count_nonzero() == 0
    keys, _ = cache.seen(0, 1, 1, 3)
    assert keys[0, 0, :2].isnan().all() and keys[0, 0, 2:].count_nonzero() == 0


def test_memory_follows_what_sequences_need_and_is_given_back():
    cache = new_cache()
    assert cache.held_bytes() == 0
    cache.arrange([[None, None, None], [], []])
    assert cache.held_bytes() == 3 * 2 * TOKEN_BYTES
    cache.arrange([[place(0, 0), place(0, 2)], [], [place(0, 1)]])
    assert cache.held_bytes() == (3 * 2 + 6) * TOKEN_BYTES, "one spare slot of the smallest size"
    cache.arrange([[], [], [place(2, 0)]])
    assert cache.held_bytes() == 6 * TOKEN_BYTES
    cache.arrange([[], [], []])
    assert cache.held_bytes() == 0


def test_rows_of_many_slots_heads_and_positions_are_stored_where_they_belong():
    shape = heads_shape(num_layers=1, num_groups=3, head_dim=2)
    cache = new_cache(shape=shape, dtype=torch.float32, sizes=(2, 5))
    cache.arrange([[None], [None] * 4])
    slots, positions = torch.tensor([3, 0, 0, 2]), torch.tensor([4, 0, 1, 2])
    key = torch.arange(24.0).view(4, 3, 2)
    cache.store(0, 1, cache.places(1, slots, positions), torch.stack((key, key + 100)))
    slab = cache.slabs[1][0]
    for row, (slot, position) in enumerate(zip(slots, positions, strict=True)):
        assert slab[0, slot, :, position].equal(key[row])
        assert slab[1, slot, :, position].equal(key[row] + 100)
    assert slab.count_nonzero() == 47, "nothing else is touched (one stored number is 0)"
    assert cache.slabs[0][0].count_nonzero() == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_latents_take_one_plane_and_one_row_a_token(dtype):
    shape = latent_shape(num_layers=2, kv_lora_rank=3, qk_rope_head_dim=2)
    cache = new_cache(shape=shape, dtype=dtype, sizes=(4,))
    cache.arrange([[None, None]])
    row = torch.arange(5, dtype=dtype).view(1, 1, 5)
    cache.store(1, 0, cache.places(0, torch.tensor([1]), torch.tensor([2])), row[None])
    (plane,) = cache.seen(1, 0, 2, 3)
    assert plane.shape == (2, 1, 3, 5)
    assert plane[1, 0, 2].equal(row[0, 0])
    assert cache.slabs[0][1].count_nonzero() == 4
    assert cache.bytes_per_token() == 2 * 5 * dtype.itemsize
    assert cache.held_bytes() == 2 * 4 * cache.bytes_per_token()
