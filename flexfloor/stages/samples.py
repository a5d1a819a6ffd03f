"""From scored responses to training samples: which groups are trained, in which mini-batch.

Invariants:
- With `filter_groups` a group whose scores are all equal gives no sample; otherwise its advantages are 0
  (or what the KL in its rewards makes of them).
- Samples keep the order of the responses, and mini-batches hold whole groups in that order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flexfloor.data.types import Prompt
from flexfloor.stages.rollout import ScoredResponse
from flexfloor.train.advantage import filter_groups
from flexfloor.train.config import AlgorithmConfig
from flexfloor.train.types import Sample


def make_samples(responses: Sequence[ScoredResponse], algorithm: AlgorithmConfig) -> list[Sample]:
    """One sample a response of the trained groups, its score as reward; the advantage is still to come."""
    scores = [each.result.score for each in responses]
    uids = [each.prompt.uid for each in responses]
    kept = filter_groups(scores, uids) if algorithm.filter_groups else np.ones(len(uids), dtype=bool)
    return [_sample(each) for each, keep in zip(responses, kept, strict=True) if keep]


def split_mini_batches(
    samples: Sequence[Sample], prompt_uids: Sequence[str], prompts_each: int
) -> list[list[Sample]]:
    """Samples of each `prompts_each` consecutive prompts; one may be empty when its groups were filtered."""
    part_of = {uid: index // prompts_each for index, uid in enumerate(prompt_uids)}
    parts: list[list[Sample]] = [[] for _ in range(-(-len(prompt_uids) // prompts_each))]
    for sample in samples:
        parts[part_of[sample.uid]].append(sample)
    return parts


def new_sample(
    prompt: Prompt, response_index: int, token_ids: Sequence[int], logprobs: Sequence[float], *, reward: float
) -> Sample:
    """Of one response; the advantage is still to come."""
    return Sample(
        uid=prompt.uid,
        response_index=response_index,
        prompt_ids=np.array(prompt.token_ids, dtype=np.int64),
        response_ids=np.array(token_ids, dtype=np.int64),
        old_logprobs=np.array(logprobs, dtype=np.float64),
        reward=reward,
    )


def _sample(each: ScoredResponse) -> Sample:
    response, score = each.response, each.result.score
    return new_sample(
        each.prompt, response.response_index, response.token_ids, response.logprobs, reward=score
    )
