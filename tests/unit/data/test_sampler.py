import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexfloor.data.sampler import PromptSampler
from flexfloor.errors import CheckpointError, ConfigError

SIZES = st.integers(1, 30).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n)))


def sampler(num_prompts, batch_size, shuffle=True, seed=0, **more):
    return PromptSampler(num_prompts, batch_size, shuffle=shuffle, seed=seed, **more)


def batches(source, count):
    return [source.next_batch() for _ in range(count)]


@given(sizes=SIZES, shuffle=st.booleans(), seed=st.integers(0, 5))
def test_every_batch_is_full_and_every_epoch_complete(sizes, shuffle, seed):
    num_prompts, batch_size = sizes
    taken = batches(sampler(num_prompts, batch_size, shuffle, seed), 3 * num_prompts)  # batch_size * 3 epochs
    assert all(len(set(batch)) == len(batch) == batch_size for batch in taken)
    flat = [index for batch in taken for index in batch]
    for epoch in range(3 * batch_size):
        assert sorted(flat[epoch * num_prompts : (epoch + 1) * num_prompts]) == list(range(num_prompts))


@given(sizes=SIZES, shuffle=st.booleans(), before=st.integers(0, 40))
def test_a_restored_sampler_continues_where_the_saved_one_stood(sizes, shuffle, before):
    unbroken = sampler(*sizes, shuffle)
    batches(unbroken, before)
    state = json.loads(json.dumps(unbroken.state_dict()))
    restored = sampler(*sizes, shuffle)
    restored.load_state_dict(state)
    assert batches(restored, 20) == batches(unbroken, 20)


def test_a_saved_state_does_not_change_with_the_sampler():
    source = sampler(5, 3)
    batches(source, 2)
    state = source.state_dict()
    before = json.dumps(state)
    batches(source, 4)
    assert json.dumps(state) == before


def test_without_shuffling_batches_run_through_the_rows_and_over_their_end():
    assert batches(sampler(5, 2, shuffle=False), 5) == [[0, 1], [2, 3], [4, 0], [1, 2], [3, 4]]


def test_orders_differ_between_epochs_and_seeds_and_not_between_runs():
    orders = [sampler(50, 50, seed=seed).next_batch() for seed in (0, 0, 1)]
    first, second = batches(sampler(50, 50), 2)
    assert orders[0] == orders[1] == first
    assert first not in (second, orders[2], list(range(50)))


def test_the_order_of_an_epoch_is_a_fair_shuffle():
    firsts = Counter(sampler(4, 1, seed=seed).next_batch()[0] for seed in range(2000))
    # 500 each with a standard deviation of 19
    assert all(400 < firsts[index] < 600 for index in range(4))


def test_fewer_prompts_than_a_batch_takes_are_refused():
    with pytest.raises(
        ConfigError, match=r"data.train_batch_size=6, allowed: at most the number of prompts, 5"
    ):
        sampler(5, 6)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"num_prompts": 6}, "num_prompts is 6, in the checkpoint 5"),
        ({"batch_size": 3}, "batch_size is 3, in the checkpoint 2"),
        ({"seed": 1}, "seed is 1, in the checkpoint 0"),
        ({"shuffle": False}, "shuffle is False, in the checkpoint True"),
        ({"fingerprint": "b"}, "fingerprint is b, in the checkpoint a"),
    ],
)
def test_a_state_of_other_data_is_refused(other, message):
    settings = {"num_prompts": 5, "batch_size": 2, "fingerprint": "a"}
    with pytest.raises(CheckpointError, match=message):
        sampler(**{**settings, **other}).load_state_dict(sampler(**settings).state_dict())
