"""Experts whose parameters are numbered in one module do all that experts in modules of their own do.

That is the layout of Transformer Engine's grouped layers. What computes here at home is plain PyTorch
(`numbered_experts`); what moves, hosts, trains as guests, converts and stores experts is FlexFloor's.
"""

import functools
import re
import tempfile
from pathlib import Path

import numbered_ranks as ranks
import numpy as np
from grouped_ranks import require_same_tokens

from flexfloor.launch import run_ranks

LIMITS = {"threads_per_rank": 1, "total_timeout_seconds": 240}


@functools.cache
def trained():
    with tempfile.TemporaryDirectory() as folder:
        found = run_ranks(ranks.training_and_files, 2, 2, "deepseek_v3", folder, **LIMITS)
        files = {
            layout: {each.name: each.read_bytes() for each in (Path(folder) / layout).glob("*.safetensors")}
            for layout in ranks.LAYOUTS
        }
    return found, files


def require_close(got, expected):
    assert got.keys() == expected.keys()
    for name, value in expected.items():
        limit = 1e-12 * (1 + np.abs(value).max())
        np.testing.assert_allclose(got[name], value, rtol=0, atol=limit, err_msg=name)


def require_equal(got, expected):
    assert got.keys() == expected.keys()
    assert [name for name, value in expected.items() if not np.array_equal(got[name], value)] == []


def in_modules(name):
    """The name, on the same rank, in the other layout."""
    return re.sub(r"experts\.(linear_fc[12]\.weight)(\d+)$", r"experts.local_experts.\2.\1", name)


def test_weights_gradients_and_updates_are_the_same_under_the_same_names():
    for of_rank in trained()[0]:
        plain, numbered = (of_rank[layout] for layout in ranks.LAYOUTS)
        assert plain["kinds"] == [("SequentialMLP", False)]
        assert numbered["kinds"] == [("TEGroupedMLP", True)]
        require_equal(numbered["weights"], plain["weights"])
        assert sum(".local_experts." in name for name in numbered["weights"]) == 4
        for case in (*ranks.grouped_ranks.CASES, "after one", "after two"):
            require_close(numbered[case], plain[case])


def test_an_export_has_the_same_bytes_and_an_import_brings_everything_back():
    found, files = trained()
    assert files["numbered"] == files["one by one"] and files["numbered"]
    assert [of_rank[layout]["imported"] for of_rank in found for layout in ranks.LAYOUTS] == [[]] * 4


def test_a_run_goes_on_from_a_checkpoint_of_the_other_layout():
    for of_rank in trained()[0]:
        plain, numbered = (of_rank[layout] for layout in ranks.LAYOUTS)
        assert numbered["shards"] == plain["shards"] and len(plain["shards"]) > 20
        for here, there in ((plain, numbered), (numbered, plain)):
            require_equal(here["loaded"], there["after one"])
            require_close(here["resumed"], there["after two"])


def test_tokens_are_the_same_on_a_fixed_group_and_on_one_that_shrinks():
    require_same_tokens(run_ranks(ranks.tokens_by_way, 2, 2, "deepseek_v3", **LIMITS)[0], tolerance=1e-12)


def test_an_early_update_with_guests_gives_the_weights_of_a_run_of_experts_one_by_one():
    with tempfile.TemporaryDirectory() as folder:
        pairs = run_ranks(ranks.early_pair, 2, folder, hang_seconds=90, **LIMITS)
    for plain, early in pairs:
        weights = {in_modules(name): weight for name, weight in early.weights.items()}
        assert weights.keys() == plain.weights.keys() != early.weights.keys()
        for name, weight in plain.weights.items():
            np.testing.assert_allclose(weights[name], weight, rtol=0, atol=1e-11, err_msg=name)
    released = pairs[1][1]
    assert released.leases and sum(released.guests_before) > 0
