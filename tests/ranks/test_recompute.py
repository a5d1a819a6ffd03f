"""Recomputation changes no gradient, no count and no bias, and keeps less, on real ranks."""

import functools
import tempfile

import numpy as np
import pytest
import recompute_ranks as ranks
import reference_moe as reference
from gradient_ranks import NINE

from flexfloor.launch import run_ranks

LIMITS = {"threads_per_rank": 1, "total_timeout_seconds": 240}
FAMILIES = ("mixtral", "qwen3_moe", "deepseek_v3")
RUNS = [(2, 2, "float64"), pytest.param((4, 2, "float64"), marks=pytest.mark.slow)]
RUNS += [pytest.param((1, 1, "float32"), marks=pytest.mark.slow)]


@functools.cache
def updates(world, ep, dtype):
    return run_ranks(ranks.updates, world, ep, FAMILIES, dtype, **LIMITS)


@pytest.fixture(params=RUNS, ids=str)
def by_rank(request):
    return updates(*request.param)


def pairs(by_rank):
    """(case, without recomputation, with it) of each rank, family and way."""
    for found in by_rank:
        for (name, way, case), got in found.items():
            if way != "none":
                yield case, found[name, "none", case], got


def test_gradients_metrics_and_biases_are_those_without_to_the_bit(by_rank):
    for case, plain, got in pairs(by_rank):
        assert got["metrics"] == plain["metrics"]
        assert plain["metrics"]["actor/grad_norm"] > 0.01 or case == "one row", "there is a gradient"
        assert got["gradients"].keys() == plain["gradients"].keys()
        for name, value in plain["gradients"].items():
            np.testing.assert_array_equal(got["gradients"][name], value, err_msg=name)
        for mine, theirs in zip(got["logprobs"], plain["logprobs"], strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_each_row_is_counted_once_for_the_biases_of_experts(by_rank):
    rows = sum(len(s["prompt"]) + len(s["response"]) - 1 for s in NINE)
    for way in ranks.WAYS:
        counted = [sum(found["deepseek_v3", way, "many"]["counted"]) for found in by_rank]
        assert sum(counted) == rows * reference.TOP_K
    for found in by_rank:
        for way in ranks.WAYS:
            biases = found["deepseek_v3", way, "many"]["biases"]
            assert biases == found["deepseek_v3", "none", "many"]["biases"]
            moved = [abs(bias - first) for bias, first in zip(biases[-1], reference.EXPERT_BIAS, strict=True)]
            assert max(moved) == pytest.approx(ranks.BIAS_RATE, abs=1e-6)


def test_what_is_recomputed_runs_twice_and_nothing_without_a_gradient_does(by_rank):
    twice = {"none": (1, 1), "moe": (1, 2), "full": (2, 2)}
    for found in by_rank:
        for (_, way, _), got in found.items():
            once = got["calls without gradient"]
            assert once["attention"] == once["router"] > 0
            passes = got["calls"]["attention"] // twice[way][0]
            assert (got["calls"]["attention"], got["calls"]["router"]) == tuple(
                passes * n for n in twice[way]
            )


def test_less_is_kept(by_rank):
    """Two layers at most: the logits and one layer, which all ways keep, are much of it."""
    for found in by_rank:
        for name in FAMILIES:
            most = [found[name, way, "many"]["most bytes"] for way in ranks.WAYS]
            assert most[1] < 0.95 * most[0] and most[2] < 0.7 * most[0], (name, most)


def test_of_a_whole_layer_its_input_is_kept_and_nothing_else():
    rows, hidden = 11, 32
    (found,) = run_ranks(ranks.kept_by_way, 1, rows, **LIMITS)
    by_layer = {way: found[way][0] for way in found}
    assert by_layer["full"] == rows * hidden * 8
    assert by_layer["full"] < by_layer["moe"] / 4 < by_layer["none"] / 8
    for way, (_, kept, estimated) in found.items():
        assert 1.2 * kept < estimated < 2 * kept, f"the estimate of {way} is {estimated}"


def test_an_early_update_with_guests_and_a_reference_gives_the_weights_without():
    with tempfile.TemporaryDirectory() as folder:
        by_rank = run_ranks(ranks.early_steps, 2, folder, hang_seconds=90, **LIMITS)
    for plain, *early in by_rank:
        for got in early:
            for name, weight in plain.weights.items():
                np.testing.assert_allclose(got.weights[name], weight, rtol=0, atol=1e-11, err_msg=name)
            for name, value in plain.metrics[1].items():
                if name.startswith("actor/"):
                    assert got.metrics[1][name] == pytest.approx(value, rel=1e-9, abs=1e-11), name
    assert all(got.leases and sum(got.guests_before) > 0 for got in by_rank[1][1:])
