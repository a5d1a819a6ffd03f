"""Plans of micro-batches: complete, alike on all ranks, within the budget, balanced."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexfloor.train.packing import plan_micro_batches

lengths_lists = st.lists(st.integers(0, 40), max_size=60)


@given(lengths_lists, st.integers(1, 9), st.integers(1, 50))
def test_plan_is_complete_and_alike_on_all_ranks(lengths, num_ranks, max_tokens):
    plan = plan_micro_batches(lengths, num_ranks, max_tokens)
    placed = sorted(i for rank in plan for members in rank for i in members)
    assert placed == [i for i, length in enumerate(lengths) if length]
    assert len(plan) == num_ranks
    assert len({len(rank) for rank in plan}) == 1
    for members in (members for rank in plan for members in rank):
        assert len(members) == 1 or sum(lengths[i] for i in members) <= max_tokens
    for turn in zip(*plan, strict=True):
        assert any(turn), "a micro-batch that is empty on every rank"
    assert plan == plan_micro_batches(list(lengths), num_ranks, max_tokens)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=60), st.integers(1, 4))
def test_ranks_differ_by_at_most_one_longest_sample_when_all_fits_at_once(lengths, num_ranks):
    plan = plan_micro_batches(lengths, num_ranks, max_tokens=10_000)
    loads = [sum(lengths[i] for i in rank[0]) for rank in plan]
    assert len(plan[0]) == 1
    assert max(loads) - min(loads) <= max(lengths)


def test_number_of_micro_batches_is_the_least_possible():
    # 8 samples of 5 rows, 2 ranks, 10 rows each: two samples a bin, 4 bins, 2 turns
    assert [len(rank) for rank in plan_micro_batches([5] * 8, 2, 10)] == [2, 2]


def test_longer_than_the_budget_is_alone():
    plan = plan_micro_batches([30, 4, 4], num_ranks=1, max_tokens=10)
    assert sorted(map(sorted, plan[0])) == [[0], [1, 2]]


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_fewer_samples_than_ranks_leave_empty_micro_batches(num_ranks):
    assert plan_micro_batches([7], num_ranks, 100) == [[[0]], *([[]] for _ in range(num_ranks - 1))]


def test_nothing_to_train():
    assert plan_micro_batches([], 3, 10) == [[], [], []]
    assert plan_micro_batches([0, 0], 2, 10) == [[], []]


def test_micro_batches_that_run_together_are_of_like_size():
    # bins of 8 and of 2 rows: a turn lasts as long as its fullest rank
    plan = plan_micro_batches([8, 8, 2, 2], num_ranks=2, max_tokens=8)
    assert [sorted(members) for members in (plan[0][0] + plan[1][0], plan[0][1] + plan[1][1])] == [
        [0, 1],
        [2, 3],
    ]
