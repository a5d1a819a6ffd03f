"""Which course is taken, on a frontier that is written down."""

from __future__ import annotations

import numpy as np
import pytest

from flexfloor.schedule.courses import Course
from flexfloor.schedule.objective import Training, choose, early_training, slack_share


def course(wall: float, occupied: float, size: int) -> Course:
    return Course(
        wall_seconds=wall, occupied_seconds=occupied, next_size=size, useful_seconds=8 * wall - occupied
    )


COURSES = [course(100, 800, 8), course(103, 500, 6), course(120, 300, 2)]


@pytest.mark.parametrize(
    ("objective", "allowed", "size"),
    [
        ("throughput", 0.0, 8),
        ("throughput", 3.0, 6),
        ("occupancy", 2.9, 8),
        ("occupancy", 20.0, 2),
        ("step_time", 0.0, 8),
    ],
)
def test_the_least_occupying_course_that_ends_early_enough(objective, allowed, size):
    taken = choose(COURSES, objective=objective, allowed_seconds=allowed)
    assert taken.next_size == size


@pytest.mark.parametrize(("work", "size"), [(0, 8), (24, 6), (324, 6), (10_000, 2)])
def test_step_time_counts_what_training_does_on_released_ranks(work, size):
    # 8 ranks: the three free 0, 324 and 660 rank-seconds, so that with 10,000 of work they end at
    # 100 + 1250, 103 + 1209.5 and 120 + 1167.5; with 324 at 140.5, 103 and 120; with 24 at 103, 103, 120
    training = Training(rank_seconds=work, ranks=8)
    taken = choose(COURSES, objective="step_time", allowed_seconds=0.0, training=training)
    assert taken.next_size == size  # with 24 of work a tie at 103, which goes to who occupies less


def test_ranks_that_have_left_count_once_they_are_enough_to_begin():
    training, sizes = Training(rank_seconds=9.0, ranks=8, least=3), np.array([8, 6, 5, 1])
    assert training.useful(sizes).tolist() == [0, 0, 3, 7]
    # a rank that cannot train yet counts as taken but for a twentieth
    assert training.held(sizes) == pytest.approx([8.0, 8 - 0.05 * 2, 5.0, 1.0])
    nothing = Training(rank_seconds=0.0, ranks=8, least=3)
    assert nothing.useful(sizes).tolist() == [0, 0, 0, 0]
    assert nothing.held(sizes).tolist() == [8.0, 6.0, 5.0, 1.0]


def test_only_occupancy_may_slow_a_rollout_by_more_than_estimates_err():
    assert slack_share("occupancy", 0.1) == 0.1
    assert slack_share("throughput", 0.1) == slack_share("step_time", 0.1) == slack_share("occupancy", 0.0)
    assert 0 < slack_share("throughput", 0.1) < 0.02


def test_ends_that_costs_cannot_tell_apart_are_equal():
    assert slack_share("throughput", 0.1, cost_error=0.03) == 0.03
    assert slack_share("throughput", 0.1, cost_error=0.001) == slack_share("throughput", 0.1)
    assert slack_share("step_time", 0.0, cost_error=0.4) == 0.05, "a bad fit is no licence to wait"
    assert slack_share("occupancy", 0.1, cost_error=0.03) == 0.1
    assert slack_share("occupancy", 0.02, cost_error=0.03) == 0.03


def test_of_courses_that_occupy_equally_the_earlier_end_is_taken():
    equal = [course(103, 500, 8), course(101, 500, 6)]
    assert choose(equal, objective="occupancy", allowed_seconds=9.0).next_size == 6


def test_all_groups_but_the_longest_tenth_are_worth_something_early():
    rows = np.array([100, 900, 10, 10, 10, 10, 10, 10, 10, 10])
    # 180 rows for two expert groups of three ranks: 30 a rank, at 1 s each and 5 s more.
    found = early_training(rows, Costs(), ranks=3, ep_groups=2, least=2)
    assert found == Training(rank_seconds=3 * (5.0 + 30.0), ranks=3, least=2)


class Costs:
    """Five seconds, and one for each row."""

    def pass_seconds(self, load):
        raise AssertionError("no pass is asked for")

    def shrink_seconds(self, before, after, moved_tokens):
        raise AssertionError("no shrink is asked for")

    def train_seconds(self, tokens):
        return 5.0 + tokens
