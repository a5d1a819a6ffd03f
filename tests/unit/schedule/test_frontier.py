"""The frontier against every course there is, tried one by one."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations_with_replacement, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexfloor.schedule.cost import PassLoad
from flexfloor.schedule.frontier import DOUBT, PRICES, Curve, Limits, frontier, horizons

AMPLE = Limits(sequences=10**9, kv_tokens=10**12)


@dataclass(frozen=True)
class Linear:
    """Seconds that are easy to write down."""

    a_pass: float = 1.0
    a_rank: float = 0.0
    a_row: float = 0.0
    a_token: float = 0.0
    a_shrink: float = 0.0

    def pass_seconds(self, load: PassLoad):
        return self.a_pass + self.a_rank * load.ranks + self.a_row * load.rows + self.a_token * load.context

    def shrink_seconds(self, before: int, after: int, moved_tokens: float) -> float:
        return self.a_shrink * (before - after)

    def train_seconds(self, tokens: float) -> float:
        return 0.0


def by_hand(curve: Curve, size: int, rungs: list[int], costs: Linear) -> list[tuple[float, float]]:
    """(wall, occupied) of every course, written without arrays."""
    found = []
    stretches = len(curve.horizons) - 1
    sizes = sorted([size, *rungs], reverse=True)
    for course in combinations_with_replacement(sizes, stretches):
        wall = occupied = 0.0
        before = size
        for s, after in enumerate(course):
            if after < before:
                wall += DOUBT * costs.shrink_seconds(before, after, 0.0)
                occupied += DOUBT * before * costs.shrink_seconds(before, after, 0.0)
            middle = (curve.unfinished[s] + curve.unfinished[s + 1]) / 2
            passes = (curve.horizons[s + 1] - curve.horizons[s]) * min(1.0, middle)
            rows = max(1.0, max(1.0, middle) / after)
            context = rows * (curve.stored + (curve.horizons[s] + curve.horizons[s + 1]) / 2)
            load = PassLoad(ranks=after, rows=rows, joining=0, context=context)
            wall += passes * costs.pass_seconds(load)
            occupied += after * passes * costs.pass_seconds(load)
            before = after
        found.append((wall, occupied))
    return found


costs = st.builds(
    Linear,
    a_pass=st.floats(0.01, 1),
    a_rank=st.floats(0, 0.2),
    a_row=st.floats(0, 0.2),
    a_token=st.floats(0, 0.01),
    a_shrink=st.floats(0, 5),
)
falling = st.lists(st.floats(0, 40), min_size=3, max_size=5).map(lambda found: sorted(found, reverse=True))


@given(costs, falling, st.sets(st.integers(1, 5), max_size=3))
def test_each_price_finds_the_cheapest_of_all_courses(model, unfinished, rungs):
    curve = Curve(
        horizons=np.cumsum([0, 3, 8, 20, 50])[: len(unfinished)], unfinished=np.array(unfinished), stored=7.0
    )
    every = by_hand(curve, 6, sorted(rungs), model)
    courses = frontier(curve, 6, sorted(rungs), model, AMPLE)
    for price, course in zip(PRICES, courses, strict=True):
        least = min(wall + price / 6 * occupied for wall, occupied in every)
        value = course.wall_seconds + price / 6 * course.occupied_seconds
        assert value == pytest.approx(least, rel=1e-9, abs=1e-12)
    walls = [course.wall_seconds for course in courses]
    assert all(later >= earlier - 1e-9 for earlier, later in pairwise(walls))


def test_fewer_ranks_are_taken_at_once_where_they_are_no_slower():
    curve = Curve(horizons=np.array([0, 10, 20]), unfinished=np.array([4.0, 2.0, 0.0]), stored=0.0)
    courses = frontier(curve, 4, [1, 2], Linear(), AMPLE)
    # 20 passes of a second; one rank instead of four from the first pass on
    assert courses[0].next_size == 1
    assert (courses[0].wall_seconds, courses[0].occupied_seconds) == (20.0, 20.0)


def test_rows_keep_ranks_until_they_become_few():
    # 0.1 s a row: 40 rows on 4 ranks take a second a pass and four on one; 4 rows 0.1 and 0.4
    curve = Curve(horizons=np.array([0, 10, 20]), unfinished=np.array([40.0, 4.0, 4.0]), stored=0.0)
    courses = frontier(curve, 4, [1, 2], Linear(a_pass=0.0, a_row=0.1), AMPLE)
    assert courses[0].next_size == 4
    assert courses[0].wall_seconds == pytest.approx(10 * 22 / 4 * 0.1 + 10 * 4 / 4 * 0.1)
    assert courses[-1].next_size == 4  # per row, ranks cost the same however many share them


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (AMPLE, 1),
        (Limits(sequences=3, kv_tokens=10**9), 2),  # 6 unfinished
        (Limits(sequences=9, kv_tokens=99), 3),  # 6 x 20, then 4 x (20 + 30) = 200, then 2 x (20 + 50)
        (Limits(sequences=9, kv_tokens=100), 2),
        (Limits(sequences=9, kv_tokens=200), 1),
        (Limits(sequences=1, kv_tokens=10**9), 6),
    ],
)
def test_a_size_is_taken_only_where_what_is_unfinished_fits_until_its_end(limits, expected):
    curve = Curve(horizons=np.array([0, 30, 50, 60]), unfinished=np.array([6.0, 4.0, 2.0, 0.0]), stored=20.0)
    courses = frontier(curve, 6, [1, 2, 3, 4, 5], Linear(), limits)
    assert courses[0].next_size == expected


def test_horizons_grow_from_now_to_the_longest():
    found = horizons(1000)
    assert found[0] == 0
    assert found[-1] == 1000
    assert np.all(np.diff(found) > 0)
    assert len(found) < 16
    assert horizons(1).tolist() == [0, 1]


def test_many_rungs_are_thinned_and_the_ends_kept():
    curve = Curve(horizons=np.array([0, 10]), unfinished=np.array([1.0, 0.0]), stored=0.0)
    courses = frontier(curve, 256, range(1, 256), Linear(a_rank=1.0), AMPLE)
    assert courses[-1].next_size == 1
