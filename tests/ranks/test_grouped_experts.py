"""Experts in groups do what experts one by one do: gradients, tokens, shrinks, leases, on real ranks."""

import functools
import tempfile

import grouped_ranks as ranks
import numpy as np
import pytest

from flexfloor.launch import run_ranks

LIMITS = {"threads_per_rank": 1, "total_timeout_seconds": 240}
TRAINED = [(1, 1, "float64", "mixtral"), (2, 2, "float64", "deepseek_v3"), (2, 2, "float32", "mixtral")]
GENERATED = [(2, 2, "float64", "mixtral"), (3, 3, "float64", "deepseek_v3"), (2, 2, "float32", "mixtral")]
TOLERANCE = {"float64": 1e-12, "float32": 2e-5}


@pytest.mark.parametrize(("world", "ep", "dtype", "name"), TRAINED)
def test_sums_of_gradients_are_those_of_experts_one_by_one(world, ep, dtype, name):
    for found in run_ranks(ranks.sums_of_gradients, world, ep, dtype, name, **LIMITS):
        plain = found.pop("one by one")
        assert plain["kinds"] == ["SequentialMLP"]
        for layout, got in found.items():
            assert got["kinds"] == ["GroupedExperts"]
            assert got["shards"] == plain["shards"] and len(plain["shards"]) > 20
            for case in ("weights", *ranks.CASES):
                assert got[case].keys() == plain[case].keys()
                for parameter, value in plain[case].items():
                    limit = TOLERANCE[dtype] * (1 + np.abs(value).max())
                    np.testing.assert_allclose(
                        got[case][parameter], value, rtol=0, atol=limit, err_msg=f"{layout}: {parameter}"
                    )
        num_local = len(found["groups of one"]["groups"][0][0][0])
        # as on a GPU: one call a product, and no copy for a rollout
        assert all(each == ([[num_local]] * 2, True) for each in found["groups"]["groups"])
        assert num_local > 1 and all(not is_even for _, is_even in found["groups of one"]["groups"])


@functools.cache
def generated(world, ep, dtype, name):
    return run_ranks(ranks.tokens_by_way, world, ep, dtype, name, **LIMITS)[0]


@pytest.mark.parametrize("run", GENERATED, ids=str)
def test_tokens_are_those_of_experts_one_by_one(run):
    ranks.require_same_tokens(generated(*run), tolerance=TOLERANCE[run[2]])


def test_an_early_update_with_guests_gives_the_weights_of_a_run_of_experts_one_by_one():
    with tempfile.TemporaryDirectory() as folder:
        pairs = run_ranks(ranks.early_pair, 2, folder, hang_seconds=90, **LIMITS)
    for plain, early in pairs:
        for name, weight in plain.weights.items():
            np.testing.assert_allclose(early.weights[name], weight, rtol=0, atol=1e-11, err_msg=name)
    released = pairs[1][1]
    assert released.leases and sum(released.guests_before) > 0
