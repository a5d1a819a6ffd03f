import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flexfloor.rollout.kv_cache import KVCache
from flexfloor.rollout.kv_shape import heads_shape, latent_shape


def new_cache(slots=4, capacity=6):
    return KVCache(
        shape=heads_shape(num_layers=2, num_groups=1, head_dim=2),
        num_slots=slots,
        capacity=capacity,
        dtype=torch.float64,
        device=torch.device("cpu"),
    )


def store(cache, slot, value):
    places = cache.places(torch.tensor([slot]), cache.lengths[slot : slot + 1])
    for layer in range(2):
        row = torch.full((1, 1, 2), value + layer, dtype=torch.float64)
        cache.store(layer, places, row, -row)
    cache.lengths[slot] += 1


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["join", "leave", "store", "copy"]), st.integers(0, 9)), max_size=40)
)
def test_sequences_keep_their_own_positions(moves):
    cache, held, fresh = new_cache(), [], iter(range(1, 1000))
    for move, pick in moves:
        if move == "join" and cache.num_free:
            [slot] = cache.join(1)
            assert slot == len(held)
            held.append([])
        elif held and move == "leave":
            slot = pick % len(held)
            moved = cache.leave(slot)
            assert moved == (None if slot == len(held) - 1 else len(held) - 1)
            held[slot] = held[-1]
            held.pop()
        elif held and move == "store" and len(held[pick % len(held)]) < 6:
            value = float(next(fresh))
            store(cache, pick % len(held), value)
            held[pick % len(held)].append(value)
        elif held and move == "copy" and cache.num_free:
            source = pick % len(held)
            cache.copy_prefix(source, cache.join(1), len(held[source]) // 2)
            held.append(held[source][: len(held[source]) // 2])
        assert cache.num_live == len(held)
        for slot, expected in enumerate(held):
            assert int(cache.lengths[slot]) == len(expected)
            for layer in range(2):
                keys, values = cache.seen(layer, cache.num_live, len(expected))
                assert keys[slot, 0, :, 0].tolist() == [value + layer for value in expected]
                assert values[slot, 0, :, 1].tolist() == [-value - layer for value in expected]


def test_a_new_sequence_finds_nothing_of_an_old_one():
    cache = new_cache(slots=1)
    cache.planes[:, 0] = float("nan")
    cache.planes[:, 1] = float("inf")
    cache.join(1)
    assert cache.planes.isfinite().all()


def test_rows_of_many_slots_heads_and_positions_are_stored_where_they_belong():
    cache = KVCache(
        shape=heads_shape(num_layers=1, num_groups=3, head_dim=2),
        num_slots=4,
        capacity=5,
        dtype=torch.float32,
        device=torch.device("cpu"),
    )
    cache.join(4)
    slots, positions = torch.tensor([3, 0, 0, 2]), torch.tensor([4, 0, 1, 2])
    key = torch.arange(24.0).view(4, 3, 2)
    cache.store(0, cache.places(slots, positions), key, key + 100)
    for row, (slot, position) in enumerate(zip(slots, positions, strict=True)):
        assert cache.planes[0, 0, slot, :, position].equal(key[row])
        assert cache.planes[0, 1, slot, :, position].equal(key[row] + 100)
    assert cache.planes.count_nonzero() == 47, "nothing else is touched (one stored number is 0)"


def test_bytes():
    cache = new_cache()
    assert cache.bytes_per_token() == 2 * 2 * 1 * 2 * 8
    cache.join(2)
    store(cache, 0, 1.0)
    store(cache, 1, 1.0)
    store(cache, 1, 1.0)
    assert cache.live_bytes() == 3 * 64


def test_latents_take_one_plane_and_one_row_a_token():
    shape = latent_shape(num_layers=2, kv_lora_rank=3, qk_rope_head_dim=2)
    cache = KVCache(shape=shape, num_slots=2, capacity=4, dtype=torch.float32, device=torch.device("cpu"))
    cache.join(2)
    row = torch.arange(5.0).view(1, 1, 5)
    cache.store(1, cache.places(torch.tensor([1]), torch.tensor([2])), row)
    (plane,) = cache.seen(1, 2, 3)
    assert plane.shape == (2, 1, 3, 5)
    assert plane[1, 0, 2].equal(row[0, 0])
    assert cache.planes.count_nonzero() == 4
    assert cache.bytes_per_token() == 2 * 5 * 4
