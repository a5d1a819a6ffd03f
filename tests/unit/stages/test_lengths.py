"""Lengths beside what was predicted of them."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from flexfloor.rollout.types import Response
from flexfloor.schedule.beliefs import Beliefs
from flexfloor.stages.lengths import prediction_metrics, rollout_lengths
from flexfloor.track.lengths import StepLengths


def scored(uid: str, index: int, length: int, reason: str = "eos") -> SimpleNamespace:
    response = Response(
        uid=uid, response_index=index, token_ids=(1,) * length, logprobs=(0.0,) * length, finish_reason=reason
    )
    return SimpleNamespace(response=response)


def test_each_response_stands_beside_its_own_prompts_prediction():
    beliefs = Beliefs(
        log_mean=np.log([10.0, 1000.0]), log_sd=np.array([0.01, 0.01]), within=0.1, runaway=1e-6
    )
    responses = [scored("b", 0, 9), scored("b", 1, 12), scored("a", 0, 990), scored("a", 1, 2000, "length")]
    found = rollout_lengths(SimpleNamespace(responses=responses, beliefs=beliefs), limit=2000)
    assert found.uid == ["b", "b", "a", "a"]
    assert found.num_tokens == [9, 12, 990, 2000]
    assert found.truncated == [False, False, False, True]
    assert found.predicted_p50 == pytest.approx([10, 10, 1000, 1000], rel=0.1)
    # 1.28 deviations of 0.1 around the median
    assert found.predicted_p10[3] == pytest.approx(1000 * np.exp(-0.128), rel=0.02)
    assert found.predicted_p90[3] == pytest.approx(1000 * np.exp(0.128), rel=0.02)


def test_metrics_by_hand():
    lengths = StepLengths(
        uid=["a"] * 4,
        response_index=[0, 1, 2, 3],
        num_tokens=[10, 20, 40, 80],
        truncated=[False] * 4,
        predicted_p10=[10.0, 10.0, 10.0, 10.0],
        predicted_p50=[20.0, 20.0, 20.0, 20.0],
        predicted_p90=[40.0, 40.0, 40.0, 40.0],
    )
    found = prediction_metrics(lengths)
    assert found["schedule/coverage80"] == 0.75
    assert found["schedule/length_error"] == pytest.approx(np.log(2) * (1 + 0 + 1 + 2) / 4)
