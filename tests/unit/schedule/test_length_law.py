"""Tails, quantiles and means of lengths against the standard library and against plain sums."""

import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexfloor.schedule.length_law import expected, log_of_length, outlives, shortest_within
from flexfloor.schedule.normal import hazard, log_survival, survival, survival_point


def test_tails_are_those_of_the_normal_distribution():
    z = np.random.default_rng(0).uniform(-8, 37, 5000)
    true = np.array([math.log(0.5 * math.erfc(each / math.sqrt(2))) for each in z])
    assert np.abs(log_survival(z) - true).max() < 2e-5
    assert np.array_equal(survival(z), np.exp(log_survival(z)))
    beyond = log_survival(np.array([37.0, 38.0, 100.0, 1e6]))
    assert (np.diff(beyond) < 0).all() and np.isfinite(beyond).all()
    assert survival(np.array([-1e6]))[0] == pytest.approx(1.0) and log_survival(np.empty((0, 3))).shape == (
        0,
        3,
    )


@given(st.floats(1e-9, 1 - 1e-9))
def test_the_inverse_is_that_of_the_standard_library(probability):
    assert survival_point(np.array([probability]))[0] == pytest.approx(
        -NormalDist().inv_cdf(probability), abs=1e-3
    )


def test_the_mean_beyond_a_point_is_that_of_draws():
    draws = np.random.default_rng(1).normal(size=2_000_000)
    for z in (-2.0, 0.0, 1.0, 2.0):
        assert hazard(np.array([z]))[0] == pytest.approx(draws[draws > z].mean(), abs=0.005)
    assert hazard(np.array([50.0]))[0] == 50.0


LAWS = st.tuples(st.floats(-1, 9), st.floats(0.05, 2), st.floats(1e-4, 0.5), st.integers(1, 3000))


@given(LAWS)
def test_the_mean_is_the_sum_over_all_lengths(law):
    mean, sd, runaway, limit = law
    z = (np.log(np.maximum(np.arange(limit), 1e-9)) - mean) / sd
    alive = np.array([0.5 * math.erfc(each / math.sqrt(2)) for each in z])
    plain = (runaway + (1 - runaway) * alive).sum()
    got = expected(np.array([mean]), np.array([sd]), runaway, limit)[0]
    assert got == pytest.approx(plain, rel=0.02, abs=0.5)
    assert 1 <= got <= limit


@given(LAWS, st.floats(0.001, 0.999))
def test_a_quantile_is_the_shortest_length_that_is_long_enough(law, outlived):
    mean, sd, runaway, limit = law
    got = int(shortest_within(np.array([outlived]), np.array([mean]), np.array([sd]), runaway, limit)[0])
    assert 1 <= got <= limit
    tolerance = 2e-3
    if got < limit:
        assert outlives(np.array([got]), mean, sd, runaway)[0] <= outlived + tolerance
    if got > 1:
        assert outlives(np.array([got - 1]), mean, sd, runaway)[0] >= outlived - tolerance


def test_a_length_stands_for_the_middle_of_what_is_rounded_up_to_it():
    assert log_of_length(np.array([1, 10])) == pytest.approx([math.log(0.5), math.log(9.5)])
    assert outlives(np.array([0]), np.array([3.0]), np.array([1.0]), 0.1)[0] == pytest.approx(1.0)
