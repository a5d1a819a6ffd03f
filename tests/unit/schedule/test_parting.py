"""Ranks that could go on each by itself: how uneven, at what price, and when the decision takes it."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations_with_replacement

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexfloor.schedule.cost import PassLoad
from flexfloor.schedule.frontier import DOUBT, PRICES, Curve, Limits, frontier
from flexfloor.schedule.guided import GuidedShrink, deviation
from flexfloor.schedule.parting import Parting, luck, unevenness
from flexfloor.schedule.shrink import Standing, Step
from tests.unit.schedule.test_frontier import AMPLE, Linear, costs, falling, some_curve
from tests.unit.schedule.test_guided import GRID, guided, standings

GRID_3 = np.array([0, 10, 30])


class Alone(Linear):
    """`Linear`, whose ranks take `a_pass / 4` and their rows once they have parted."""

    def alone_seconds(self, load: PassLoad):
        return self.a_pass / 4 + self.a_row * load.rows + self.a_token * load.context


def parted_by_hand(curve: Curve, course: list[int], after: int, apart: float, costs: Alone):
    """(wall, occupied) of sizes `course`, the last of which parts before stretch number `after`."""
    wall = occupied = 0.0
    before = 6
    for s in range(len(curve.horizons) - 1):
        is_apart = s >= after
        size = course[min(s, len(course) - 1)]
        change = DOUBT * costs.shrink_seconds(before, size, 0.0)
        if is_apart and s == after:
            change += DOUBT * costs.shrink_seconds(size, 1, 0.0)
        wall, occupied, before = wall + change, occupied + before * change, size
        length = curve.horizons[s + 1] - curve.horizons[s]
        live = (curve.unfinished[s] + curve.unfinished[s + 1]) / 2
        context = curve.stored + (curve.horizons[s] + curve.horizons[s + 1]) / 2
        rows = max(1.0, live / size)
        load = PassLoad(ranks=size, rows=rows, joining=0, context=rows * context)
        seconds = apart * costs.alone_seconds(load) if is_apart else costs.pass_seconds(load)
        # of so many ranks at least one of `live` responses is on
        busy = size * (1 - ((size - 1) / size) ** live) / apart if is_apart else size
        wall += length * min(1.0, live) * seconds
        occupied += length * min(1.0, live) * seconds * busy
    return wall, occupied


def every_parted(curve: Curve, rungs: list[int], may_part: list[int], apart: float, costs: Alone):
    sizes, stretches = sorted([6, *rungs], reverse=True), len(curve.horizons) - 1
    for after in range(stretches):
        for course in combinations_with_replacement(sizes, after):
            for last in may_part:
                if last <= (course[-1] if course else 6):
                    yield parted_by_hand(curve, [*course, last], after, apart, costs)


alone = costs.map(lambda linear: Alone(**{name: getattr(linear, name) for name in Linear.__annotations__}))


@given(alone, falling, st.sets(st.integers(1, 5), max_size=3), st.sets(st.integers(2, 6)), st.floats(1, 2))
def test_no_price_is_missed_by_a_course_that_parts(model, unfinished, rungs, may_part, apart):
    curve, rungs = some_curve(unfinished), sorted(rungs)
    together = frontier(curve, 6, rungs, model, AMPLE)
    allowed = [size for size in (6, *rungs) if size in may_part]
    parting = Parting(sizes=tuple(sorted(may_part)), unevenness=(apart,) * len(may_part))
    parted = list(every_parted(curve, rungs, allowed, apart, model))
    for price, without, course in zip(
        PRICES, together, frontier(curve, 6, rungs, model, AMPLE, parting=parting), strict=True
    ):
        values = [wall + price / 6 * occupied for wall, occupied in parted]
        least = min([without.wall_seconds + price / 6 * without.occupied_seconds, *values])
        found = course.wall_seconds + price / 6 * course.occupied_seconds
        assert found == pytest.approx(least, rel=1e-9, abs=1e-12)
        assert not course.parts or course.next_size in allowed


def test_nothing_parts_without_the_memory():
    curve = some_curve([10.0, 5.0, 1.0])
    courses = frontier(curve, 6, [3], Alone(a_pass=1.0), AMPLE)
    assert not any(course.parts for course in courses)


def test_ranks_that_expect_the_same_are_even():
    each = np.array([[4.0, 2.0, 0.0]] * 3)
    assert unevenness(each, np.full(3, 5.0), GRID_3, Alone(a_row=0.1, a_token=0.01), AMPLE) == 1.0


def test_the_last_rank_counts_against_a_mean_share():
    # 10 passes of 3 rows and 20 of one against 10 of 2 and 20 of what is one row at least
    unfinished = np.array([[4.0, 2.0, 0.0], [2.0, 0.0, 0.0]])
    costs = Alone(a_pass=0.0, a_row=1.0)
    found = unevenness(unfinished, np.zeros(2), GRID_3, costs, AMPLE)
    assert found == pytest.approx((10 * 3 + 20 * 1) / (10 * 2 + 20 * 1))


def test_what_has_no_room_prolongs_a_ranks_own_end():
    # 4 responses of 30 passes on two places take 60 of 2 rows; a mean rank has 2.5, and 15 more at their end
    unfinished = np.array([[4.0, 4.0, 4.0], [1.0, 1.0, 1.0]])
    found = unevenness(
        unfinished, np.zeros(2), GRID_3, Alone(a_pass=4.0), Limits(sequences=2, kv_tokens=10**6)
    )
    assert found == pytest.approx(60 / (30 + 0.5 * 30 / 2))


LENGTHS = [[200, 210], [205, 220], [190, 230], [215, 225]]


@pytest.mark.parametrize("a_shrink, parts", [(0.01, True), (1000.0, False)])
def test_a_group_parts_where_that_is_worth_the_copies(a_shrink, parts):
    # together a pass takes 4 s whatever its size, and alone one
    rule = guided(Alone(a_pass=4.0, a_shrink=a_shrink))
    told = standings(LENGTHS, 8)
    assert rule.decide(told, [], passes=8, may_part=[4]) == Step(size=4, parts=parts)
    assert rule.decide(told, [], passes=8) == Step(size=4, parts=False)


def test_a_rank_with_all_the_work_keeps_a_group_together():
    costs = Alone(a_pass=0.4, a_row=1.0, a_shrink=0.01)
    skewed = standings([[200] * 8, [40], [40], [40]], 8)
    evened = standings([[200] * 2 + [40]] * 4, 8)
    assert not guided(costs).decide(skewed, [], passes=8, may_part=[4]).parts
    assert guided(costs).decide(evened, [], passes=8, may_part=[4]).parts


def test_fewer_ranks_may_part_than_there_are():
    # alone a pass takes half a second however many rows it has: two ranks, each by itself at once
    costs = Alone(a_pass=2.0, a_rank=0.5, a_shrink=0.001)
    told = standings(LENGTHS, 8)
    assert guided(costs).decide(told, [2], passes=8, may_part=[2]) == Step(size=2, parts=True)
    two = [
        Standing(
            unfinished=one.unfinished + other.unfinished,
            kv_tokens=one.kv_tokens + other.kv_tokens,
            finished=0,
            alive=tuple(a + b for a, b in zip(one.alive, other.alive, strict=True)),
        )
        for one, other in zip(told[:2], told[2:], strict=True)
    ]
    assert guided(costs).decide(two, [], passes=8, may_part=[2]) == Step(size=2, parts=True)
    assert len(GRID) == len(two[0].alive)


def test_the_last_of_lucky_and_unlucky_ranks_by_lot():
    # of 40 responses a rank, all lengths drawn alike
    rng = np.random.default_rng(0)
    for size in (2, 3, 4, 8):
        drawn = rng.exponential(1.0, (4000, size, 40)).sum(axis=2)
        late = (drawn.max(axis=1) / drawn.mean(axis=1)).mean() - 1
        share = 1 / (40 * size) ** 0.5
        assert share * luck(size, 5.0) == pytest.approx(late, rel=0.1), size
    assert luck(4, 1.0) == luck(4, 0.3) == 0.0
    assert luck(4, 1.5) == pytest.approx(luck(4, 2.0) / 2)


def test_the_deviation_is_that_of_all_responses_together():
    horizons = np.arange(0, 4001)
    falling = np.exp(-horizons / 100)  # memoryless: as much deviation as mean
    known = (horizons < 500).astype(float)
    assert deviation(np.array([falling] * 9), horizons) == pytest.approx(300, rel=0.01)
    assert deviation(np.array([known] * 9), horizons) < 30
    assert deviation(np.zeros((0, 4001)), horizons) == 0


def test_ranks_that_may_be_unlucky_stay_together():
    costs = Alone(a_pass=1.0, a_row=0.05, a_shrink=0.01)
    limits = Limits(sequences=2, kv_tokens=10**6)
    for spread, parts in ((0, True), (10**5, False)):
        told = [replace(each, deviation=spread) for each in standings([[200] * 8] * 4, 8)]
        rule = GuidedShrink(costs, GRID, limits, objective="throughput", max_slowdown=0.0)
        assert rule.decide(told, [], passes=8, may_part=[4]).parts == parts
