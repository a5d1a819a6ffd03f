"""Costs that were measured are found again, also where they were not measured, and never below nothing."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flexfloor.schedule.cost import PassLoad
from flexfloor.schedule.fitted_cost import FittedCost, PassSample
from flexfloor.schedule.fitted_time import ENOUGH
from flexfloor.schedule.plain_cost import PlainCost
from flexfloor.schedule.time_samples import KINDS, OF_A_KIND, TimeSamples

RUNGS = (1, 2, 3, 4, 8)


def machine(ranks, rows, joining, context):
    """Milliseconds of a pass by numbers that no code here knows."""
    exchange = 1.5 * np.log2(ranks) + 0.05 * (rows + joining) * (1 - 1 / ranks)
    return 4 + 8 / ranks + exchange + 0.08 * (rows + joining) + 0.02 * joining + 0.0005 * context


def uneven_machine(ranks, rows, joining, context):
    """More ranks than cores: four wait for each other far longer than any rule says."""
    fixed = {1: 14.0, 2: 38.0, 4: 129.0}
    return np.vectorize(fixed.get)(ranks) + 0.3 * rows + 0.001 * context + 0.3 * joining


def decoding_machine(ranks, rows, joining, context):
    """A decoding row costs more than a token of a prompt, as attention in small pieces makes it."""
    return 4 + 8 / ranks + (0.3 + 0.1 * ranks) * rows + 0.2 * joining + 0.001 * context


def loads(rng, sizes, number):
    rows = rng.integers(0, 129, number)
    joining = rng.integers(1, 300, number) * (rng.random(number) < 0.1)
    return rng.choice(sizes, number), rows, joining, rows * rng.integers(50, 1500, number)


def measure(rng, sizes, number, law=machine, noise=0.0, outliers=0.0):
    columns = loads(rng, sizes, number)
    seconds = law(*columns) / 1000 * np.exp(rng.normal(0, noise, number))
    slow = rng.random(number) < outliers
    seconds[slow] *= rng.uniform(2, 10, slow.sum())
    return [
        PassSample(load=PassLoad(ranks=r, rows=n, joining=j, context=c), seconds=s)
        for r, n, j, c, s in zip(*(column.tolist() for column in columns), seconds.tolist(), strict=True)
    ]


def fitted(samples, start=None):
    cost = FittedCost(start or PlainCost(), RUNGS)
    cost.add_passes(samples)
    cost.refit()
    return cost


def errors(cost, ranks, law=machine):
    ranks, rows, joining, context = loads(np.random.default_rng(99), [ranks], 300)
    predicted = cost.pass_seconds(PassLoad(ranks=ranks, rows=rows, joining=joining, context=context))
    return np.abs(predicted / (law(ranks, rows, joining, context) / 1000) - 1)


def test_known_costs_are_found_again():
    cost = fitted(measure(np.random.default_rng(0), [1, 2, 4, 8], 2000))
    for ranks in (1, 2, 4, 8):
        assert errors(cost, ranks).max() < 0.005
    assert cost.median_relative_errors()["passes"] < 0.001


def test_noise_and_outliers_of_a_shared_machine_do_not_move_them():
    # a tenth of the passes takes 2 to 10 times as long
    cost = fitted(measure(np.random.default_rng(1), [1, 2, 4, 8], 3000, noise=0.05, outliers=0.1))
    for ranks in (1, 2, 4, 8):
        assert np.median(errors(cost, ranks)) < 0.02 and errors(cost, ranks).max() < 0.06
    assert 0.02 < cost.median_relative_errors()["passes"] < 0.06


@pytest.mark.parametrize("measured, asked", [((2, 4, 8), 1), ((1, 4, 8), 2), ((1, 2, 4, 8), 3), ((4, 8), 1)])
def test_a_number_of_ranks_that_was_never_measured_is_answered_from_others(measured, asked):
    cost = fitted(measure(np.random.default_rng(2), measured, 2000, noise=0.02, outliers=0.05))
    assert np.median(errors(cost, asked)) < 0.05 and errors(cost, asked).max() < 0.15


def test_a_number_of_ranks_has_its_own_constant_where_no_rule_fits():
    cost = fitted(measure(np.random.default_rng(3), [1, 2, 4], 2000, law=uneven_machine, noise=0.02))
    for ranks in (1, 2, 4):
        assert errors(cost, ranks, uneven_machine).max() < 0.05


def test_a_decoding_row_may_cost_more_than_a_token_of_a_prompt():
    cost = fitted(measure(np.random.default_rng(5), [1, 2, 4], 2000, law=decoding_machine, noise=0.02))
    for ranks in (1, 2, 4):
        assert np.median(errors(cost, ranks, decoding_machine)) < 0.02


def test_what_was_never_measured_keeps_the_proportions_of_the_start():
    start = PlainCost(seconds=0.001)
    samples = measure(
        np.random.default_rng(4),
        [8],
        300,
        law=lambda *load: (
            7000
            * start.pass_seconds(
                PassLoad(**dict(zip(("ranks", "rows", "joining", "context"), load, strict=True)))
            )
        ),
    )
    cost = fitted(samples, start)
    for ranks in (1, 2, 4, 8):
        load = PassLoad(ranks=ranks, rows=32, joining=0, context=20_000)
        assert cost.pass_seconds(load) == pytest.approx(7 * start.pass_seconds(load), rel=0.1)


def test_few_measurements_scale_the_start():
    start, load = PlainCost(), PassLoad(ranks=4, rows=10, joining=0, context=1000)
    cost = FittedCost(start, RUNGS)
    assert cost.pass_seconds(load) == start.pass_seconds(load)
    cost.add_passes([PassSample(load=load, seconds=3 * start.pass_seconds(load))] * (ENOUGH - 1))
    assert cost.pass_seconds(load) == start.pass_seconds(load)
    cost.refit()
    other = PassLoad(ranks=2, rows=60, joining=30, context=5000)
    assert cost.pass_seconds(other) == pytest.approx(3 * start.pass_seconds(other))


def test_shrinks_and_training_are_fitted_too():
    cost = FittedCost(PlainCost(), RUNGS)
    rng = np.random.default_rng(5)
    for _ in range(60):
        before = int(rng.integers(2, 9))
        after, moved = int(rng.integers(1, before)), float(rng.integers(0, 10_000))
        seconds = 0.02 + 0.3 * (1 / after - 1 / before) + 1e-5 * moved / after
        cost.add_shrink(before, after, moved, seconds * (5 if rng.random() < 0.1 else 1))
        tokens = float(rng.integers(100, 5000))
        cost.add_training(tokens, 0.05 + 4e-4 * tokens)
    cost.refit()
    assert cost.shrink_seconds(8, 2, 4000) == pytest.approx(0.02 + 0.3 * 0.375 + 0.02, rel=0.01)
    assert cost.train_seconds(8000) == pytest.approx(3.25, rel=0.01)
    assert cost.num_samples()["training"] > 0 and cost.median_relative_errors()["shrinks"] < 0.01


def test_one_number_gives_a_number_and_arrays_their_shape():
    for cost in (FittedCost(PlainCost(), RUNGS), fitted(measure(np.random.default_rng(6), [1, 2], 100))):
        assert isinstance(cost.pass_seconds(PassLoad(ranks=2, rows=3, joining=0, context=10)), float)
        rows = np.arange(12).reshape(3, 4)
        got = cost.pass_seconds(PassLoad(ranks=2, rows=rows, joining=0, context=10 * rows))
        assert got.shape == (3, 4)
    assert np.isnan(FittedCost(PlainCost(), RUNGS).median_relative_errors()["passes"])


def test_a_saved_fit_answers_the_same():
    cost = fitted(measure(np.random.default_rng(7), [1, 2, 4, 8], 3000, noise=0.1, outliers=0.1))
    cost.add_shrink(4, 2, 100, 0.5)
    cost.refit()
    again = FittedCost.from_state(json.loads(json.dumps(cost.state())), PlainCost(), RUNGS)
    load = PassLoad(ranks=np.array(RUNGS), rows=np.arange(5) * 20, joining=0, context=5000)
    assert np.array_equal(cost.pass_seconds(load), again.pass_seconds(load))
    assert cost.shrink_seconds(4, 2, 50) == again.shrink_seconds(4, 2, 50)
    assert again.state() == cost.state()


SECONDS = st.floats(1e-6, 1e3)
LOAD = st.tuples(st.integers(1, 64), st.integers(0, 500), st.integers(0, 5000), st.integers(0, 10**6))


@settings(max_examples=60)
@given(st.lists(st.tuples(LOAD, SECONDS), max_size=60), LOAD, LOAD)
def test_whatever_was_measured_costs_are_finite_and_grow_with_the_load(measured, load, more):
    cost = fitted(
        [
            PassSample(load=PassLoad(ranks=r, rows=n, joining=j, context=c), seconds=seconds)
            for (r, n, j, c), seconds in measured
        ]
    )
    ranks, *less = load
    greater = [a + b for a, b in zip(less, more[1:], strict=True)]
    low = cost.pass_seconds(PassLoad(ranks=ranks, rows=less[0], joining=less[1], context=less[2]))
    high = cost.pass_seconds(PassLoad(ranks=ranks, rows=greater[0], joining=greater[1], context=greater[2]))
    assert np.isfinite([low, high]).all() and 0 <= low <= high * (1 + 1e-9)


def test_memory_is_bounded_and_the_rare_is_not_forgotten():
    samples = TimeSamples(2)
    samples.add([1, 5], 0.5)
    for number in range(20_000):
        samples.add([8, number % 100], 1.0 + number)
    assert [1.0, 5.0, 0.5] in samples.rows()
    assert len(samples) <= 1 + 7 * OF_A_KIND
    for number in range(10_000):
        samples.add([number, 0], 1.0)
    assert len(samples) == KINDS
    for bad in (float("nan"), float("inf"), 0.0, -1.0):
        samples.add([1, 1], bad)
    assert len(samples) == KINDS


def test_the_start_without_a_model_of_the_hardware_grows_with_everything():
    cost = PlainCost()
    base = PassLoad(ranks=2, rows=8, joining=0, context=100)
    for more in (
        PassLoad(ranks=2, rows=9, joining=0, context=100),
        PassLoad(ranks=2, rows=8, joining=1, context=100),
        PassLoad(ranks=2, rows=8, joining=0, context=101),
    ):
        assert cost.pass_seconds(more) > cost.pass_seconds(base) > 0
    assert cost.shrink_seconds(8, 1, 100) > cost.shrink_seconds(8, 4, 100) > cost.shrink_seconds(8, 4, 0) > 0
    assert cost.train_seconds(100) > cost.train_seconds(10) > 0


def in_each_others_way(ranks, rows, joining, context):
    """Ranks that have parted, on two cores."""
    return machine(1, rows, joining, context) * np.maximum(1, ranks / 2)


def test_ranks_that_have_parted_take_what_a_group_of_one_takes_until_they_are_measured():
    cost = fitted(measure(np.random.default_rng(7), [1, 2, 4], 500))
    loads = {"rows": 9, "joining": 20, "context": 900}
    for ranks in (2, 4):
        asked = cost.alone_seconds(PassLoad(ranks=ranks, **loads))
        assert asked == pytest.approx(cost.pass_seconds(PassLoad(ranks=1, **loads)))


def test_ranks_that_have_parted_are_found_to_be_in_each_others_way():
    rng = np.random.default_rng(8)
    cost = fitted(measure(rng, [1, 2, 4], 500))
    together = cost.pass_seconds(PassLoad(ranks=4, rows=10, joining=0, context=900))
    cost.add_alone(measure(rng, [2, 4], 800, law=in_each_others_way, noise=0.02))
    cost.refit()
    again = FittedCost.from_state(json.loads(json.dumps(cost.state())), PlainCost(), RUNGS)
    for each in (cost, again):
        assert each.pass_seconds(PassLoad(ranks=4, rows=10, joining=0, context=900)) == together
        for ranks in (2, 4):
            rows, context = np.array([2, 10, 60]), np.array([500, 5_000, 40_000])
            load = PassLoad(ranks=ranks, rows=rows, joining=0 * rows, context=context)
            expected = in_each_others_way(ranks, rows, 0, context) / 1000
            assert each.alone_seconds(load) == pytest.approx(expected, rel=0.05)


def test_costs_from_before_ranks_parted_are_taken():
    cost = fitted(measure(np.random.default_rng(9), [1, 2], 100))
    state = cost.state()
    del state["alone"], state["unseen"]
    again, load = (
        FittedCost.from_state(state, PlainCost(), RUNGS),
        PassLoad(ranks=2, rows=3, joining=0, context=9),
    )
    assert again.alone_seconds(load) == cost.alone_seconds(load)


@pytest.mark.parametrize(
    "measured, expected",
    [
        ({3: 2.0}, [1.0, 4 / 3, 2.0, 16 / 3]),  # as if 1.5 ranks could run at full speed
        ({3: 1.0}, [1.0, 1.0, 1.0, 1.0]),
        ({2: 1.1, 4: 1.6}, [1.0, 1.095, 1.2, 3.2]),  # 2 has faded by one rollout
        ({2: 1.5, 4: 1.6}, [1.0, 1.475, 1.475, 3.2]),
    ],
)
def test_numbers_that_never_parted_share_what_serves_a_few(measured, expected):
    cost = fitted(measure(np.random.default_rng(9), [1, 2, 4], 500))
    load = {"rows": 9, "joining": 0, "context": 900}
    one = cost.pass_seconds(PassLoad(ranks=1, **load))
    for ranks, factor in measured.items():
        cost.add_alone([PassSample(load=PassLoad(ranks=ranks, **load), seconds=factor * one)])
    cost.refit()
    factors = [cost.alone_seconds(PassLoad(ranks=ranks, **load)) / one for ranks in (1, 2, 3, 8)]
    assert factors == pytest.approx(expected)


def test_a_machine_that_was_busy_once_is_tried_again():
    cost = fitted(measure(np.random.default_rng(9), [1, 2, 4], 500))
    load = PassLoad(ranks=4, rows=9, joining=0, context=900)
    one = cost.pass_seconds(PassLoad(ranks=1, rows=9, joining=0, context=900))
    cost.add_alone([PassSample(load=load, seconds=3 * one)])
    for _ in range(7):
        cost.add_alone([])
    cost.refit()
    again = FittedCost.from_state(json.loads(json.dumps(cost.state())), PlainCost(), RUNGS)
    assert cost.alone_seconds(load) == again.alone_seconds(load)
    assert cost.alone_seconds(load) / one == pytest.approx(1 + 2 * 0.95**7)
    for each in (cost, again):
        each.add_alone([PassSample(load=load, seconds=3 * one)])
        each.refit()
        assert each.alone_seconds(load) / one == pytest.approx(3.0)


def test_how_far_passes_are_off_is_known_once_they_are_fitted():
    cost = FittedCost(PlainCost(), RUNGS)
    assert cost.pass_error == 0.0
    noisy = fitted(measure(np.random.default_rng(11), [1, 2, 4], 500, noise=0.2))
    exact = fitted(measure(np.random.default_rng(11), [1, 2, 4], 500, noise=0.0))
    assert exact.pass_error < 0.03 < 0.08 < noisy.pass_error < 0.25
