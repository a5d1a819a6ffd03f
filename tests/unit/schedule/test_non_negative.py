"""The best non-negative sum, against every choice of its parts."""

from itertools import combinations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from flexfloor.schedule.non_negative import fit, solve


def by_all_choices(gram, target):
    """The least value over every set of parts that may be above 0."""
    best = 0.0
    for size in range(1, len(target) + 1):
        for chosen in map(list, combinations(range(len(target)), size)):
            x = np.linalg.solve(gram[np.ix_(chosen, chosen)], target[chosen])
            if (x >= 0).all():
                best = min(best, -0.5 * float(target[chosen] @ x))
    return best


@settings(max_examples=300)
@given(st.integers(0, 10**6), st.integers(1, 6))
def test_no_choice_of_parts_is_better(seed, size):
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(size + 2, size))
    gram, target = matrix.T @ matrix + 1e-6 * np.eye(size), rng.normal(size=size)
    found = solve(gram, target)
    value = 0.5 * found @ gram @ found - target @ found
    assert (found >= 0).all()
    assert value <= by_all_choices(gram, target) + 1e-9


def test_a_part_that_would_be_negative_is_left_out():
    rng = np.random.default_rng(0)
    features = rng.uniform(0, 1, (200, 3))
    seconds = 2 + features @ [1.0, 0.0, 3.0] - 0.5 * features[:, 1]
    found = fit(np.column_stack([np.ones(200), features]), seconds, np.ones(200), np.ones(4))
    assert (found >= 0).all() and found[2] == 0.0


def test_a_third_of_the_measurements_may_be_anywhere_above():
    rng = np.random.default_rng(1)
    cause = rng.uniform(0, 10, 400)
    seconds = 1 + 0.5 * cause
    slow = rng.random(400) < 0.33
    seconds[slow] *= rng.uniform(1, 50, slow.sum())
    found = fit(np.column_stack([np.ones(400), cause]), seconds, np.ones(400), np.ones(2))
    assert np.allclose(found, [1, 0.5], rtol=0.01)
