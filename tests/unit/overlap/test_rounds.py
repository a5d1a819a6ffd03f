"""Which samples make one micro-batch on each rank of a lease."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from flexfloor.overlap.rounds import next_round
from flexfloor.train.packing import plan_micro_batches
from flexfloor.train.types import Sample


def sample(index, rows):
    """One with a prompt of one token, so that it has as many rows as response tokens."""
    return Sample(uid=f"p{index}", response_index=0, prompt_ids=np.array([1]), response_ids=np.arange(rows))


def rows_of(samples):
    return [each.num_rows for each in samples]


def test_the_longest_go_first_as_far_as_they_fit():
    waiting = [sample(index, rows) for index, rows in enumerate([3, 9, 4, 8, 1])]
    # Two ranks of ten rows each: 9 and 8, to which 1 and nothing else can be added; 4 would make 21.
    assert rows_of(next_round(waiting, num_replicas=2, max_tokens=10)) == [9, 8]
    assert rows_of(next_round(waiting, num_replicas=2, max_tokens=12)) == [9, 8, 4, 3]


def test_a_sample_that_is_longer_than_a_micro_batch_goes_alone():
    assert rows_of(next_round([sample(0, 50), sample(1, 2)], num_replicas=1, max_tokens=10)) == [50]


def test_nothing_to_train_is_no_round():
    assert next_round([], num_replicas=2, max_tokens=10) == []
    assert next_round([sample(0, 0)], num_replicas=2, max_tokens=10) == []


@given(st.lists(st.integers(0, 60), max_size=40), st.integers(1, 6), st.integers(1, 50))
def test_a_round_has_one_micro_batch_a_rank_and_the_longest_of_what_waits(lengths, num_ranks, max_tokens):
    waiting = [sample(index, rows) for index, rows in enumerate(lengths)]
    found = next_round(waiting, num_replicas=num_ranks, max_tokens=max_tokens)
    trainable = sorted((rows for rows in lengths if rows), reverse=True)
    assert rows_of(found) == trainable[: len(found)]
    assert bool(found) == bool(trainable)
    if found:
        plan = plan_micro_batches(rows_of(found), num_ranks, max_tokens)
        assert all(len(micro_batches) == 1 for micro_batches in plan)
