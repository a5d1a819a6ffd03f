"""The frontier against every course there is, tried one by one."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations_with_replacement, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexfloor.schedule.cost import PassLoad
from flexfloor.schedule.frontier import DOUBT, PRICES, Curve, Limits, _shrink_seconds, frontier, horizons

AMPLE = Limits(sequences=10**9, kv_tokens=10**12)


@dataclass(frozen=True)
class Linear:
    """Seconds that are easy to write down."""

    a_pass: float = 1.0
    a_rank: float = 0.0
    a_row: float = 0.0
    a_token: float = 0.0
    a_shrink: float = 0.0
    a_joining: float = 0.0

    def pass_seconds(self, load: PassLoad):
        of_rows = self.a_row * load.rows + self.a_joining * load.joining + self.a_token * load.context
        return self.a_pass + self.a_rank * load.ranks + of_rows

    def shrink_seconds(self, before: int, after: int, moved_tokens: float) -> float:
        return self.a_shrink * (before - after)

    def train_seconds(self, tokens: float) -> float:
        return 0.0


def loads_by_hand(curve: Curve, size: int, limits: Limits) -> list[tuple[float, float, float]]:
    """(passes, rows of a rank, context) of each stretch at one size, token by token of what has to wait."""
    found, behind = [], 0.0
    for s in range(len(curve.horizons) - 1):
        length = curve.horizons[s + 1] - curve.horizons[s]
        stored = curve.stored + (curve.horizons[s] + curve.horizons[s + 1]) / 2
        places = size * min(limits.sequences, limits.kv_tokens / stored)
        tokens = (curve.unfinished[s] + curve.unfinished[s + 1]) / 2 * length + behind
        live = min(tokens / length, places)
        behind = tokens - live * length
        passes = length * min(1.0, live)
        if s == len(curve.horizons) - 2:
            passes += behind / places
        rows = max(1.0, live / size)
        found.append((passes, rows, rows * stored))
    return found


def by_hand(
    curve: Curve, size: int, rungs: list[int], costs: Linear, limits: Limits
) -> list[tuple[float, float]]:
    """(wall, occupied) of every course, written without arrays."""
    found = []
    stretches = len(curve.horizons) - 1
    sizes = sorted([size, *rungs], reverse=True)
    load_of = {each: loads_by_hand(curve, each, limits) for each in sizes}
    for course in combinations_with_replacement(sizes, stretches):
        wall = occupied = 0.0
        before = size
        for s, after in enumerate(course):
            if after < before:
                held = min(
                    curve.unfinished[s] * (curve.stored + curve.horizons[s]), before * limits.kv_tokens
                )
                lost = max(0.0, held - after * limits.kv_tokens)
                shrink = costs.shrink_seconds(before, after, 0.0) + costs.a_joining * lost / after
                wall += DOUBT * shrink
                occupied += DOUBT * before * shrink
            passes, rows, context = load_of[after][s]
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
    a_joining=st.floats(0, 0.1),
)
falling = st.lists(st.floats(0, 40), min_size=3, max_size=5).map(lambda found: sorted(found, reverse=True))


limits = st.just(AMPLE) | st.builds(Limits, sequences=st.integers(1, 40), kv_tokens=st.integers(60, 2000))


@given(costs, falling, st.sets(st.integers(1, 5), max_size=3), limits)
def test_each_price_finds_the_cheapest_of_all_courses(model, unfinished, rungs, limits):
    curve = Curve(
        horizons=np.cumsum([0, 3, 8, 20, 50])[: len(unfinished)], unfinished=np.array(unfinished), stored=7.0
    )
    every = by_hand(curve, 6, sorted(rungs), model, limits)
    courses = frontier(curve, 6, sorted(rungs), model, limits)
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


def test_responses_that_do_not_fit_take_turns():
    # 8 on places for 2 a rank: 4 ranks run 10 passes, 2 twice as many, one four times
    curve = Curve(horizons=np.array([0, 10]), unfinished=np.array([8.0, 8.0]), stored=5.0)
    limits = Limits(sequences=9, kv_tokens=20)
    walls = [frontier(curve, size, [], Linear(), limits)[0].wall_seconds for size in (4, 2, 1)]
    assert walls == [10.0, 20.0, 40.0]
    by_number = Limits(sequences=2, kv_tokens=10**6)
    assert frontier(curve, 1, [], Linear(), by_number)[0].wall_seconds == 40.0


def test_the_longest_go_first_and_others_fill_up_beside_them():
    # 10 unfinished, then 2: 10 x 10 + 6 x 10 + 2 x 20 = 200 tokens. 4 places have done 160 of them when the
    # longest ends, and take 10 passes for the rest; taking turns evenly would take 25 + 15 + 20.
    curve = Curve(
        horizons=np.array([0, 10, 20, 30, 40]), unfinished=np.array([10.0, 10.0, 2.0, 2.0, 2.0]), stored=0.0
    )
    flat = Curve(horizons=curve.horizons, unfinished=np.array([4.0] * 5), stored=0.0)
    limits = Limits(sequences=4, kv_tokens=10**6)
    assert frontier(curve, 1, [], Linear(), limits)[0].wall_seconds == 50.0
    assert frontier(flat, 1, [], Linear(), limits)[0].wall_seconds == 40.0


def test_what_a_shrink_leaves_no_room_for_is_computed_again():
    curve = Curve(horizons=np.array([0, 1000]), unfinished=np.array([8.0, 0.0]), stored=50.0)
    limits = Limits(sequences=9, kv_tokens=200)
    free = frontier(curve, 2, [1], Linear(a_rank=10.0), Limits(sequences=9, kv_tokens=10**6))
    assert free[0].next_size == 1
    dear = frontier(curve, 2, [1], Linear(a_rank=0.001, a_joining=1.0), limits)
    assert dear[0].next_size == 2


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


def test_only_what_caches_held_can_be_lost():
    # 100 responses would store 5,000 tokens; two caches hold 400 of them, and one 200
    curve = Curve(horizons=np.array([0, 10]), unfinished=np.array([100.0, 0.0]), stored=50.0)
    limits = Limits(sequences=10**6, kv_tokens=200)
    found = _shrink_seconds(curve, np.array([2, 1]), Linear(a_joining=1.0), limits)
    assert found[0, 0, 1] == 200.0
