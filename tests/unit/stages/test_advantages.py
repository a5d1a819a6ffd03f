"""Rewards less the KL, and their advantages, by hand."""

import numpy as np
import pytest

from flexfloor.stages.advantages import form_advantages
from flexfloor.train.config import AlgorithmConfig
from flexfloor.train.types import Sample


def _sample(uid, index, score, old, ref):
    return Sample(
        uid=uid,
        response_index=index,
        prompt_ids=np.array([1]),
        response_ids=np.zeros(len(old), dtype=np.int64),
        old_logprobs=np.array(old, dtype=np.float64),
        ref_logprobs=None if ref is None else np.array(ref, dtype=np.float64),
        reward=score,
    )


PAIR = [_sample("a", 0, 1.0, [-1.0, -2.0], [-2.0, -4.0]), _sample("a", 1, 0.0, [-1.0], [-0.5])]
EQUAL = [_sample("b", 0, 1.0, [], []), _sample("b", 1, 1.0, [-1.0, -1.0], [-1.5, -2.5])]


def test_the_kl_summed_over_a_response_is_taken_off_its_score():
    algorithm = AlgorithmConfig(use_kl_in_reward=True, kl_coef=0.1, norm_adv_by_std_in_grpo=False)
    parts, metrics = form_advantages([PAIR, EQUAL], algorithm)
    # sums over tokens: (1 + 2), (-0.5), nothing, (0.5 + 1.5)
    rewards = [sample.reward for part in parts for sample in part]
    assert rewards == pytest.approx([1 - 0.3, 0 + 0.05, 1.0, 1 - 0.2])
    advantages = [sample.advantage for part in parts for sample in part]
    assert advantages == pytest.approx([0.325, -0.325, 0.1, -0.1])
    # means over tokens: 1.5, -0.5, nothing, 1
    assert metrics["actor/reward_kl_penalty"] == pytest.approx((1.5 - 0.5 + 0 + 1) / 4)
    spread = [metrics[f"critic/rewards/{which}"] for which in ("mean", "max", "min")]
    assert spread == pytest.approx([(0.7 + 0.05 + 1.0 + 0.8) / 4, 1.0, 0.05])
    assert metrics["critic/advantages/max"] == pytest.approx(0.325)


def test_without_kl_in_the_reward_it_is_the_score():
    parts, metrics = form_advantages([PAIR, EQUAL], AlgorithmConfig(norm_adv_by_std_in_grpo=False))
    assert [sample.reward for part in parts for sample in part] == [1.0, 0.0, 1.0, 1.0]
    assert [sample.advantage for part in parts for sample in part] == [0.5, -0.5, 0.0, 0.0]
    advantages = {"mean": 0.0, "max": 0.5, "min": -0.5}
    assert metrics == {f"critic/advantages/{which}": value for which, value in advantages.items()}


@pytest.mark.parametrize("in_reward", [True, False])
def test_nothing_to_train(in_reward):
    assert form_advantages([[], []], AlgorithmConfig(use_kl_in_reward=in_reward)) == ([[], []], {})


def test_kl_needs_a_reference():
    with pytest.raises(AssertionError, match="a"):
        form_advantages([[_sample("a", 0, 1.0, [-1.0], None)]], AlgorithmConfig(use_kl_in_reward=True))
