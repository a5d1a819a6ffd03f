"""Steps in which rewards, passes and training are late at random: nobody waits for ever, nothing changes."""

import tempfile

import early_ranks as ranks
import numpy as np
import pytest

from flexfloor.launch import run_ranks

NUM_STEPS = 50
LAYOUTS = [(2, 2), (3, 3), (4, 4), (4, 2)]
"""Ranks and size of an expert group; four times fifty steps."""


@pytest.mark.slow
@pytest.mark.timeout(1000)
@pytest.mark.parametrize(("world", "ep"), LAYOUTS)
def test_steps_with_random_delays_end_and_learn_what_a_run_without_overlap_learns(world, ep):
    late = "reward.custom_reward_function.kwargs={wait: 0.1}"
    words = (f"trainer.total_training_steps={NUM_STEPS}", f"parallel.ep={ep}", late, "actor.optim.lr=1e-4")
    cases = [
        ranks.Case(words=(*words, "overlap=off"), pause=0.0),
        ranks.Case(words=(*words, "overlap=on"), pause=0.0, jitter=world * 10 + ep),
    ]
    with tempfile.TemporaryDirectory() as folder:
        found = run_ranks(
            ranks.run_cases,
            world,
            cases,
            folder,
            threads_per_rank=1,
            hang_seconds=60,
            total_timeout_seconds=900,
        )
    early = 0.0
    for off, on in found:
        for name, weight in off.weights.items():
            np.testing.assert_allclose(on.weights[name], weight, rtol=0, atol=1e-9, err_msg=name)
        assert sorted(on.metrics) == sorted(off.metrics)
        early = max(on.metrics[step]["overlap/trained_fraction"] for step in range(1, NUM_STEPS + 1))
    assert early > 0
