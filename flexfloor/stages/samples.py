"""From scored responses to training samples: advantages, and which groups are trained.

Invariants:
- With `filter_groups` a group whose rewards are all equal gives no sample; otherwise its advantages are 0.
- Samples keep the order of the responses, and mini-batches hold whole groups in that order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flexfloor.stages.rollout import ScoredResponse
from flexfloor.train.advantage import filter_groups, grpo_advantages
from flexfloor.train.config import AlgorithmConfig
from flexfloor.train.types import Sample


def make_samples(responses: Sequence[ScoredResponse], algorithm: AlgorithmConfig) -> list[Sample]:
    """One sample a response, with its advantage within its prompt's group."""
    rewards = [each.result.score for each in responses]
    uids = [each.prompt.uid for each in responses]
    advantages = grpo_advantages(
        rewards,
        uids,
        [each.response.response_index for each in responses],
        norm_by_std=algorithm.norm_adv_by_std_in_grpo,
    )
    kept = filter_groups(rewards, uids) if algorithm.filter_groups else np.ones(len(uids), dtype=bool)
    return [
        _sample(each, float(advantage))
        for each, advantage, keep in zip(responses, advantages, kept, strict=True)
        if keep
    ]


def split_mini_batches(
    samples: Sequence[Sample], prompt_uids: Sequence[str], prompts_each: int
) -> list[list[Sample]]:
    """Samples of each `prompts_each` consecutive prompts; one may be empty when its groups were filtered."""
    part_of = {uid: index // prompts_each for index, uid in enumerate(prompt_uids)}
    parts: list[list[Sample]] = [[] for _ in range(-(-len(prompt_uids) // prompts_each))]
    for sample in samples:
        parts[part_of[sample.uid]].append(sample)
    return parts


def _sample(each: ScoredResponse, advantage: float) -> Sample:
    return Sample(
        uid=each.prompt.uid,
        response_index=each.response.response_index,
        prompt_ids=np.array(each.prompt.token_ids, dtype=np.int64),
        response_ids=np.array(each.response.token_ids, dtype=np.int64),
        old_logprobs=np.array(each.response.logprobs, dtype=np.float64),
        advantage=advantage,
        reward=each.result.score,
    )
