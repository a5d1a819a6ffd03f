"""What no schedule can beat: against schedules that were simulated, by hand, and its linear programme."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flexfloor.simulate.bound import greatest, least_occupied, least_wall
from flexfloor.simulate.hardware import HARDWARE
from flexfloor.simulate.lengths import DrawnLengths
from flexfloor.simulate.policies import POLICIES
from flexfloor.simulate.run import simulate
from tests.unit.simulate.test_simulated_policies import scenario

numbers = st.integers(0, 9)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_greatest_worth_is_that_of_the_best_corner(data):
    variables, count = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 4))
    worth = np.array(data.draw(st.lists(numbers, min_size=variables, max_size=variables)), float)
    rows = st.lists(st.integers(1, 9), min_size=variables, max_size=variables)
    taken = np.array(data.draw(st.lists(rows, min_size=count, max_size=count)), float)
    limits = np.array(data.draw(st.lists(numbers, min_size=count, max_size=count)), float)
    # A corner of the allowed prices lies on as many limits, or zeros, as there are prices.
    every, against = np.vstack([taken, -np.eye(variables)]), np.append(limits, np.zeros(variables))
    best = 0.0
    for chosen in map(list, combinations(range(len(every)), variables)):
        if abs(np.linalg.det(every[chosen])) > 1e-9:
            corner = np.linalg.solve(every[chosen], against[chosen])
            if (every @ corner <= against + 1e-9).all():
                best = max(best, float(worth @ corner))
    assert greatest(worth, taken, limits) == pytest.approx(best, abs=1e-7)


@pytest.mark.parametrize(
    ("model", "changes"),
    [
        ("qwen3-30b-a3b", {}),
        ("qwen3-30b-a3b", {"floor_seconds": 0.01, "ep": 4}),
        ("qwen3-30b-a3b", {"max_live": 8}),
        ("mixtral-8x7b", {"hardware": HARDWARE["h200"]}),
        ("mixtral-8x7b", {"tp": 2}),
        ("deepseek-v3", {"hardware": HARDWARE["h200"], "num_gpus": 32, "ep": 32}),
    ],
)
def test_no_schedule_beats_its_bound(model, changes):
    trace = DrawnLengths(num_prompts=16, num_responses=4, median=150, cap=1500)
    same = scenario(model, trace=trace, overlap=False, **changes)
    for policy in ("paged", "greedy", "oracle"):
        step = next(simulate(same, POLICIES[policy], 1))
        lengths = [trace.step(0)]
        assert 0.0 < least_occupied(same, lengths, step.wall_s) <= step.occupied_s
        assert 0.0 < least_wall(same, lengths) <= step.wall_s


def test_one_response_takes_a_pass_a_token():
    """Of 10 ms, whatever it holds: on one rank where that holds all experts, else on the least that do."""
    alone = DrawnLengths(num_prompts=1, num_responses=1, median=500, cap=400, seed=3)
    tokens = int(alone.step(0).tokens[0])
    for hardware, ranks in (("h200", 1), ("h100", 2)):
        same = scenario("mixtral-8x7b", trace=alone, hardware=HARDWARE[hardware], floor_seconds=0.01)
        least = least_occupied(same, [alone.step(0)], 1e9)
        assert least == pytest.approx(ranks * tokens * 0.01, rel=1e-6)
        assert least_wall(same, [alone.step(0)]) == pytest.approx(tokens * 0.01)


def test_seconds_to_spare_let_a_bound_fall():
    trace = DrawnLengths(num_prompts=16, num_responses=4, median=150, cap=1500)
    same, steps = scenario("mixtral-8x7b", trace=trace), [trace.step(0)]
    least = least_wall(same, steps)
    found = [least_occupied(same, steps, share * least) for share in (1.0, 1.1, 1.5, 4.0)]
    assert found[0] > found[1] > found[2] >= found[3] > 0.0
