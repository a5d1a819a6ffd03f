import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flexfloor.rollout.kv_cache import KVCache


def new_cache(slots=4, capacity=6):
    return KVCache(
        num_layers=2,
        num_groups=1,
        head_dim=2,
        num_slots=slots,
        capacity=capacity,
        dtype=torch.float64,
        device=torch.device("cpu"),
    )


def store(cache, slot, value):
    position = int(cache.lengths[slot])
    cache.keys[:, slot, :, position] = value
    cache.values[:, slot, :, position] = -value
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
            assert cache.keys[1, slot, 0, : len(expected), 0].tolist() == expected
            assert cache.values[0, slot, 0, : len(expected), 1].tolist() == [-value for value in expected]


def test_a_new_sequence_finds_nothing_of_an_old_one():
    cache = new_cache(slots=1)
    cache.keys.fill_(float("nan"))
    cache.values.fill_(float("inf"))
    cache.join(1)
    assert cache.keys.isfinite().all() and cache.values.isfinite().all()


def test_bytes():
    cache = new_cache()
    assert cache.bytes_per_token() == 2 * 2 * 1 * 2 * 8
    cache.join(2)
    store(cache, 0, 1.0)
    store(cache, 1, 1.0)
    store(cache, 1, 1.0)
    assert cache.live_bytes() == 3 * 64
