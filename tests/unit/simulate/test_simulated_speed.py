"""How long a large simulation takes; by the processor's time, whatever else runs here."""

from __future__ import annotations

import time

import pytest

from flexfloor.simulate.hardware import HARDWARE
from flexfloor.simulate.lengths import DrawnLengths
from flexfloor.simulate.models import MODELS
from flexfloor.simulate.policies import POLICIES
from flexfloor.simulate.run import simulate
from flexfloor.simulate.scenario import Scenario


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["paged", "flexfloor"])
def test_ten_epochs_of_eight_replicas_with_4096_responses_take_less_than_a_minute(policy):
    scenario = Scenario(
        model=MODELS["qwen3-30b-a3b"],
        hardware=HARDWARE["h100"],
        num_gpus=8,
        ep=8,
        trace=DrawnLengths(num_prompts=4096, num_responses=8),
        prompt_tokens=512,
    )
    began = time.process_time()
    steps = list(simulate(scenario, POLICIES[policy], 10))
    assert time.process_time() - began < 60
    assert sum(step.tokens for step in steps) > 10 * 8 * 4096 * 1000
