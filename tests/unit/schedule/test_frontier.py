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
from flexfloor.schedule.objective import Training

AMPLE = Limits(sequences=10**9, kv_tokens=10**12)


@dataclass(frozen=True)
class Linear:
    """Seconds that are easy to write down."""

    pass_error = 0.0

    a_pass: float = 1.0
    a_rank: float = 0.0
    a_row: float = 0.0
    a_token: float = 0.0
    a_shrink: float = 0.0
    a_joining: float = 0.0
    a_moved: float = 0.0

    def pass_seconds(self, load: PassLoad):
        of_rows = self.a_row * load.rows + self.a_joining * load.joining + self.a_token * load.context
        return self.a_pass + self.a_rank * load.ranks + of_rows

    def shrink_seconds(self, before: int, after: int, moved_tokens: float) -> float:
        return self.a_shrink * (before - after) + self.a_moved * moved_tokens

    def train_seconds(self, tokens: float) -> float:
        return 0.0


def places_by_hand(size: int, stored: float, limits: Limits) -> float:
    return size * min(limits.sequences, limits.kv_tokens / max(stored, 1.0))


def stored_by_hand(curve: Curve, passes: float, size: int, limits: Limits) -> float:
    """Tokens that a live response stores: a mean response's at most where they take turns."""
    if curve.unfinished[0] > places_by_hand(size, curve.stored, limits):
        pairs = pairwise(zip(curve.horizons, curve.unfinished, strict=True))
        tokens = sum((later - now) * (some + fewer) / 2 for (now, some), (later, fewer) in pairs)
        passes = min(passes, tokens / curve.unfinished[0])
    return curve.stored + passes


def seconds_by_hand(live: float, asked: float, size: int, stored: float, costs: Linear, limits: Limits):
    """Of a pass: straight from what runs if nothing was left behind to full places."""

    def of(running: float) -> float:
        rows = max(1.0, running / size)
        return costs.pass_seconds(PassLoad(ranks=size, rows=rows, joining=0, context=rows * stored))

    places = places_by_hand(size, stored, limits)
    alone = min(asked, places)
    if places == alone:
        return of(alone)
    return of(alone) + (live - alone) / (places - alone) * (of(places) - of(alone))


def shrink_by_hand(curve, stretch, size, before, after, costs, limits):
    stored = stored_by_hand(curve, curve.horizons[stretch], size, limits)
    live = [min(curve.unfinished[stretch], places_by_hand(each, stored, limits)) for each in (before, after)]
    lost = (live[0] - live[1]) * stored
    return DOUBT * (costs.shrink_seconds(before, after, 0.0) + costs.a_joining * lost / after)


def follow(curve: Curve, course: tuple[int, ...], size: int, costs: Linear, limits: Limits):
    """(wall, occupied) of one course, token by token of what has to wait."""
    wall = occupied = behind = 0.0
    before, last = size, len(course) - 1
    for s, after in enumerate(course):
        if after < before:
            shrink = shrink_by_hand(curve, s, size, before, after, costs, limits)
            wall, occupied = wall + shrink, occupied + before * shrink
        length = curve.horizons[s + 1] - curve.horizons[s]
        stored = stored_by_hand(curve, (curve.horizons[s] + curve.horizons[s + 1]) / 2, size, limits)
        places = places_by_hand(after, stored, limits)
        asked = (curve.unfinished[s] + curve.unfinished[s + 1]) / 2
        live = min(asked + behind / length, places)
        behind += (asked - live) * length
        seconds = length * min(1.0, live) * seconds_by_hand(live, asked, after, stored, costs, limits)
        if s == last:
            seconds += behind / places * seconds_by_hand(places, asked, after, stored, costs, limits)
        wall, occupied, before = wall + seconds, occupied + after * seconds, after
    return wall, occupied


def by_hand(
    curve: Curve, size: int, rungs: list[int], costs: Linear, limits: Limits
) -> list[tuple[float, float, int]]:
    """(wall, occupied, first size) of every course, written without arrays."""
    sizes = sorted([size, *rungs], reverse=True)
    every = combinations_with_replacement(sizes, len(curve.horizons) - 1)
    return [(*follow(curve, course, size, costs, limits), course[0]) for course in every]


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


tight = st.builds(Limits, sequences=st.integers(1, 40), kv_tokens=st.integers(60, 2000))


def some_curve(unfinished: list[float]) -> Curve:
    return Curve(
        horizons=np.cumsum([0, 3, 8, 20, 50])[: len(unfinished)], unfinished=np.array(unfinished), stored=7.0
    )


@given(costs, falling, st.sets(st.integers(1, 5), max_size=3))
def test_each_price_finds_the_cheapest_of_all_courses(model, unfinished, rungs):
    curve = some_curve(unfinished)
    every = by_hand(curve, 6, sorted(rungs), model, AMPLE)
    courses = frontier(curve, 6, sorted(rungs), model, AMPLE)
    for price, course in zip(PRICES, courses, strict=True):
        least = min(wall + price / 6 * occupied for wall, occupied, _ in every)
        value = course.wall_seconds + price / 6 * course.occupied_seconds
        assert value == pytest.approx(least, rel=1e-9, abs=1e-12)
    walls = [course.wall_seconds for course in courses]
    assert all(later >= earlier - 1e-9 for earlier, later in pairwise(walls))


@given(costs, falling, st.sets(st.integers(1, 5), max_size=3), tight)
def test_where_not_all_fit_a_course_is_told_as_it_would_go(model, unfinished, rungs, limits):
    curve = some_curve(unfinished)
    every = by_hand(curve, 6, sorted(rungs), model, limits)
    for course in frontier(curve, 6, sorted(rungs), model, limits):
        told = (course.wall_seconds, course.occupied_seconds)
        assert any(
            told == pytest.approx((wall, held)) for wall, held, size in every if size == course.next_size
        )


def test_where_not_all_fit_a_course_is_near_the_cheapest():
    # Always the same 100 cases of 6 ranks
    rng, losses, fastest = np.random.default_rng(0), [], []
    for _ in range(100):
        model = Linear(a_pass=0.5, a_rank=0.1, a_row=rng.uniform(0, 0.1), a_shrink=rng.uniform(0, 0.5))
        curve = some_curve(sorted(rng.uniform(0, 60, 5), reverse=True))
        limits = Limits(sequences=int(rng.integers(2, 12)), kv_tokens=10**6)
        every = by_hand(curve, 6, [1, 3], model, limits)
        for price, course in zip(PRICES, frontier(curve, 6, [1, 3], model, limits), strict=True):
            least = min(wall + price / 6 * occupied for wall, occupied, _ in every)
            losses.append((course.wall_seconds + price / 6 * course.occupied_seconds) / least - 1)
        fastest.append(losses[-len(PRICES)])
    assert np.quantile(losses, 0.9) < 0.003 and np.quantile(losses, 0.99) < 0.05 and max(losses) < 0.1
    assert np.quantile(fastest, 0.9) < 0.01 and max(fastest) < 0.1


def test_ranks_stay_until_the_queues_are_empty():
    # A pass takes 0.9 s with 4 ranks and 64 places, 0.6 s with one and 16. 128 at first, 4 to the end.
    curve = Curve(
        horizons=np.array([0, 10, 20, 40]), unfinished=np.array([128.0, 64.0, 4.0, 4.0]), stored=0.0
    )
    limits = Limits(sequences=16, kv_tokens=10**6)
    [fastest, *_] = frontier(curve, 4, [1], Linear(a_pass=0.5, a_rank=0.1), limits)
    # Of 960 tokens 640 are generated in the first ten passes, of 340 and the other 320 again 640.
    assert fastest.next_size == 4
    # The 20 that are left run beside the last four on one rank. One rank alone would take 1380 / 16 passes.
    assert fastest.wall_seconds == pytest.approx(20 * 0.9 + 20 * 0.6)


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
    # by number: two ranks held 6 responses of 50 tokens, one goes on with 3
    found = _shrink_seconds(
        curve, np.array([2, 1]), Linear(a_joining=1.0), Limits(sequences=3, kv_tokens=10**6)
    )
    assert found[0, 0, 1] == 150.0


def test_of_the_caches_that_go_on_the_leavers_share_is_moved():
    # three ranks hold 12 responses of 50 tokens, and one goes on with 4: 200 tokens, two thirds of them moved
    curve = Curve(horizons=np.array([0, 10]), unfinished=np.array([12.0, 0.0]), stored=50.0)
    limits = Limits(sequences=4, kv_tokens=10**6)
    found = _shrink_seconds(curve, np.array([3, 1]), Linear(a_moved=3.0), limits)
    assert found[0, 0, 1] == pytest.approx(3.0 * 200 * 2 / 3)


def test_useful_are_the_rank_seconds_in_which_enough_have_left():
    curve = Curve(horizons=np.array([0, 10]), unfinished=np.array([4.0, 4.0]), stored=0.0)
    training = Training(rank_seconds=1e6, ranks=6, least=3)
    for size, useful in ((6, 0.0), (4, 0.0), (3, 3 * 10.0), (1, 5 * 10.0)):
        [course, *_] = frontier(curve, size, [], Linear(), AMPLE, training)
        assert course.useful_seconds == useful
        assert course.occupied_seconds == size * 10.0


def test_responses_that_take_turns_stay_young():
    # 40 of 5 tokens each take turns on 4 places: 200 tokens in 50 passes. Were what is live after 30 passes
    # taken to store 30 tokens, there would be places for 80 / 30 of them only.
    curve = Curve(horizons=np.array([0, 10, 50]), unfinished=np.array([40.0, 0.0, 0.0]), stored=0.0)
    limits = Limits(sequences=4, kv_tokens=80)
    [course, *_] = frontier(curve, 1, [], Linear(), limits)
    assert course.wall_seconds == pytest.approx(50.0)
    alone = Curve(horizons=np.array([0, 10, 100]), unfinished=np.array([4.0, 4.0, 4.0]), stored=0.0)
    [course, *_] = frontier(alone, 1, [], Linear(a_pass=0.0, a_token=1.0), limits)
    # four live ones that grow to 100 tokens: places for 80 / 55 of them at 55 tokens each
    assert course.wall_seconds > 90 * 80
