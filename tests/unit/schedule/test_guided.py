"""The guided decision over a whole rollout that is followed by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexfloor.schedule.frontier import Limits, horizons
from flexfloor.schedule.guided import GuidedShrink, told
from flexfloor.schedule.objective import OBJECTIVES, Training
from flexfloor.schedule.shrink import Standing
from tests.unit.schedule.test_frontier import Linear

LONGEST = 512
GRID = horizons(LONGEST)
AMPLE = Limits(sequences=1000, kv_tokens=10**6)


def standings(lengths: list[list[int]], passed: int) -> list[Standing]:
    """Of ranks whose responses have these lengths, known, after so many passes."""
    found = []
    for own in lengths:
        left = np.array([length - passed for length in own if length > passed])
        survival = (left[:, None] > GRID).astype(float)
        found.append(
            Standing(unfinished=len(left), kv_tokens=len(left) * passed, finished=0, alive=told(survival))
        )
    return found


def guided(costs: Linear, *, objective="throughput", slowdown=0.0, **more) -> GuidedShrink:
    return GuidedShrink(costs, GRID, AMPLE, objective=objective, max_slowdown=slowdown, **more)


def roll_out(lengths: list[list[int]], decision: GuidedShrink, costs: Linear) -> tuple[float, float, list]:
    """(wall, occupied, sizes): passes of the cost model, balanced, a decision after every eighth."""
    size, wall, occupied, sizes = len(lengths), 0.0, 0.0, []
    every = sorted(length for own in lengths for length in own)
    for passed in range(max(every)):
        if passed and passed % 8 == 0:
            held = [every[rank::size] for rank in range(size)]
            after = decision.decide(standings(held, passed), range(1, size), passes=8).size
            assert after <= size
            if after < size:
                wall += costs.shrink_seconds(size, after, 0.0)
                occupied += size * costs.shrink_seconds(size, after, 0.0)
            size = after
        live = sum(length > passed for length in every)
        seconds = costs.a_pass + costs.a_row * max(1.0, live / size) + costs.a_rank * size
        wall += seconds
        occupied += size * seconds
        sizes.append(size)
    return wall, occupied, sizes


LENGTHS = [[20, 400], [30, 60], [40, 80], [50, 100]]


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_one_rank_is_left_with_the_last_response(objective):
    costs = Linear(a_pass=1.0, a_row=0.1, a_shrink=0.1)
    _, occupied, sizes = roll_out(LENGTHS, guided(costs, objective=objective), costs)
    assert sizes[0] == 4
    assert sizes[-1] == 1
    assert sizes == sorted(sizes, reverse=True)
    _, fixed, _ = roll_out(LENGTHS, guided(Linear(a_pass=1.0, a_row=0.1, a_shrink=1e9)), costs)
    assert occupied < fixed / 2


def test_no_shrink_that_costs_more_than_it_frees():
    costs = Linear(a_pass=1.0, a_row=0.1, a_shrink=1000.0)
    _, _, sizes = roll_out(LENGTHS, guided(costs), costs)
    assert set(sizes) == {4}


@given(st.floats(0.0, 0.5), st.lists(st.integers(1, 400), min_size=8, max_size=8), st.floats(0.0, 0.3))
def test_the_allowed_slowdown_is_kept_over_a_whole_rollout(slowdown, lengths, a_row):
    costs = Linear(a_pass=0.5, a_row=a_row, a_shrink=0.2)
    dealt = [lengths[rank::4] for rank in range(4)]
    fastest, _, _ = roll_out(dealt, guided(costs), costs)
    slower, _occupied, _ = roll_out(dealt, guided(costs, objective="occupancy", slowdown=slowdown), costs)
    # a stretch is charged by its middle, so that a shrink may come a little early or late
    assert slower <= fastest * (1 + slowdown + 0.1) + 4


def test_work_for_released_ranks_makes_them_leave_earlier():
    costs = Linear(a_pass=1.0, a_row=0.5, a_shrink=0.1)
    lengths = [[100, 200], [100, 220], [100, 240], [100, 260]]
    _, _, without = roll_out(lengths, guided(costs, objective="step_time"), costs)
    training = Training(rank_seconds=1000.0, ranks=4)
    _, _, early = roll_out(lengths, guided(costs, objective="step_time", training=training), costs)
    assert sum(early) < sum(without)


def test_nobody_leaves_early_for_work_that_cannot_begin():
    costs = Linear(a_pass=1.0, a_row=0.5, a_shrink=0.1)
    lengths = [[100, 200], [100, 220], [100, 240], [100, 260]]
    _, _, without = roll_out(lengths, guided(costs, objective="step_time"), costs)
    never = Training(rank_seconds=1000.0, ranks=4, least=4)
    fastest, _, late = roll_out(lengths, guided(costs, objective="step_time", training=never), costs)
    assert fastest <= roll_out(lengths, guided(costs), costs)[0] * 1.02
    three = Training(rank_seconds=1000.0, ranks=4, least=3)
    _, _, early = roll_out(lengths, guided(costs, objective="step_time", training=three), costs)
    assert sum(late) >= sum(without) > sum(early)
    assert not {2, 3} & set(early), "what two or three leave undone is of no use to training"


def test_told_counts_expected_responses_in_parts():
    assert told(np.array([[1.0, 0.5], [1.0, 0.25]])) == (512, 192)
    assert told(np.zeros((0, 3))) == (0, 0, 0)


def test_what_is_unfinished_now_counts_though_nobody_believes_in_it():
    costs = Linear(a_pass=0.0, a_rank=1.0)
    nothing = (0,) * len(GRID)
    told_nothing = [Standing(unfinished=1, kv_tokens=20, finished=0, alive=nothing)] * 4
    assert guided(costs).decide(told_nothing, [1, 2, 3], passes=8).size == 1


def test_what_waits_takes_no_time_of_the_present_pass_and_no_room_in_the_cache():
    alive = told(np.ones((10, len(GRID))))
    standing = Standing(unfinished=10, kv_tokens=100, finished=0, waiting=6, waiting_tokens=60, alive=alive)
    assert (standing.live, standing.live_tokens) == (4, 40)
    # 8 passes of a second, of 4 rows at 0.5 s and of 40 tokens at 0.01 s
    rule = guided(Linear(a_pass=1.0, a_row=0.5, a_token=0.01, a_shrink=1e9))
    rule.decide([standing, standing], [1], passes=8)
    assert rule._elapsed_seconds == pytest.approx(8 * (1.0 + 4 * 0.5 + 40 * 0.01))


def test_a_course_that_costs_cannot_tell_from_the_fastest_is_taken_with_fewer_ranks():
    """A pass takes 1.02 s on one rank, 1.5 % more than on four, and a quarter of the rank-seconds."""

    class Measured(Linear):
        def __init__(self, pass_error):
            super().__init__(a_pass=1.025, a_rank=-0.005, a_shrink=1e-6)
            object.__setattr__(self, "pass_error", pass_error)

    told = standings([[400], [400], [400], [400]], 8)
    sizes = [guided(Measured(error)).decide(told, [1, 2, 3], passes=8).size for error in (0.0, 0.03)]
    assert sizes == [4, 1]
