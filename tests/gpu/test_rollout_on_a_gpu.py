"""On one CUDA device: both rollout paths, and the sampler against the trainer. `make test-gpu` runs it."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "ranks"))

import rollout_ranks as ranks
from test_rollout_engine import rollout_and_training_logprobs

from flexfloor import device
from flexfloor.launch import run_ranks

pytestmark = pytest.mark.gpu


def tokens_by_path(dtype):
    model = ranks.new_model(1, dtype)
    ways = [ranks.generate(model, path=path, deal="by prompt")[0] for path in ("reference", "fast")]
    return [{key: response.token_ids for key, response in found.items()} for found in ways]


def test_both_paths_give_the_same_tokens():
    assert not device.is_cpu_host(), "there is no CUDA device here"
    [(reference, fast)] = run_ranks(tokens_by_path, 1, "float64", total_timeout_seconds=300)
    assert len(fast) == 21 and fast == reference


def test_the_sampler_and_the_trainer_agree():
    assert not device.is_cpu_host(), "there is no CUDA device here"
    [(sampled, trained)] = run_ranks(
        rollout_and_training_logprobs, 1, 1, "float64", 1.0, total_timeout_seconds=300
    )
    assert np.abs(np.exp(trained - sampled) - 1).max() < 1e-9
