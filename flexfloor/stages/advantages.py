"""From scores to rewards and advantages, with the KL to the reference where it belongs to the reward.

Invariants:
- A reward is the score less kl_coef * sum over tokens of (log pi_old - log pi_ref), or the score alone.
- Mini-batches keep their samples in order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from itertools import chain

import numpy as np

from flexfloor.stages.rollout_metrics import spread
from flexfloor.train.advantage import grpo_advantages
from flexfloor.train.config import AlgorithmConfig
from flexfloor.train.types import Sample


def form_advantages(
    parts: Sequence[Sequence[Sample]], algorithm: AlgorithmConfig
) -> tuple[list[list[Sample]], dict[str, float]]:
    """The mini-batches, of whole groups each, with rewards and advantages; and metrics of both."""
    metrics: dict[str, float] = {}
    if algorithm.use_kl_in_reward:
        parts = [take_off_kl(part, algorithm.kl_coef) for part in parts]
        metrics = kl_reward_metrics([*chain(*parts)])
    done = [set_advantages(part, algorithm) for part in parts]
    advantages = [sample.advantage for sample in chain(*done)]
    return done, metrics | (spread("critic/advantages", advantages) if advantages else {})


def set_advantages(samples: Sequence[Sample], algorithm: AlgorithmConfig) -> list[Sample]:
    """The samples of whole groups, each with the advantage of its reward within its group."""
    advantages = grpo_advantages(
        [sample.reward for sample in samples],
        [sample.uid for sample in samples],
        [sample.response_index for sample in samples],
        norm_by_std=algorithm.norm_adv_by_std_in_grpo,
    )
    return [
        dataclasses.replace(sample, advantage=float(advantage))
        for sample, advantage in zip(samples, advantages, strict=True)
    ]


def take_off_kl(samples: Sequence[Sample], kl_coef: float) -> list[Sample]:
    """Take kl_coef * sum over tokens of (log pi_old - log pi_ref) off each reward, as verl does."""
    return [
        dataclasses.replace(sample, reward=sample.reward - kl_coef * float(_token_kl(sample).sum()))
        for sample in samples
    ]


def kl_reward_metrics(samples: Sequence[Sample]) -> dict[str, float]:
    """What `take_off_kl` left, under verl's names; nothing without samples.

    `actor/reward_kl_penalty` is the mean over responses of each one's mean over its tokens, in nats and
    before the coefficient; a response without tokens counts as 0. `critic/rewards` are of what is trained.
    """
    if not samples:
        return {}
    means = [float(_token_kl(sample).mean()) if len(sample.response_ids) else 0.0 for sample in samples]
    rewards = spread("critic/rewards", [sample.reward for sample in samples])
    return {"actor/reward_kl_penalty": float(np.mean(means)), **rewards}


def _token_kl(sample: Sample) -> np.ndarray:
    """The k1 estimate of KL(pi_old || pi_ref) at each token, [R], nats."""
    assert sample.old_logprobs is not None and sample.ref_logprobs is not None, sample.uid
    return sample.old_logprobs - sample.ref_logprobs
