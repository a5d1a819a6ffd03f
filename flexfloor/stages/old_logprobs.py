"""The policy that sampled, as the training model sees it."""

from __future__ import annotations

import dataclasses

import numpy as np

from flexfloor.stages.rollout_metrics import agreement_metrics
from flexfloor.train.recompute import compute_logprobs
from flexfloor.train.types import Sample
from flexfloor.worker import Worker


def training_logprobs(worker: Worker, part: list[Sample]) -> list[np.ndarray]:
    """log pi of a mini-batch's response tokens, float64 [R] each, by the model's weights as they are."""
    return compute_logprobs(
        worker.ddp,
        part,
        worker.groups,
        micro_batch_tokens=worker.config.actor.micro_batch_tokens,
        temperature=worker.config.rollout.temperature,
    )


def recompute(worker: Worker, parts: list[list[Sample]]) -> tuple[list[list[Sample]], dict[str, float]]:
    """Replace the sampler's log-probabilities by the training model's, and say how far apart they were."""
    fresh, sampled, trained = [], [], []
    for part in parts:
        logprobs = training_logprobs(worker, part)
        fresh.append([dataclasses.replace(s, old_logprobs=lp) for s, lp in zip(part, logprobs, strict=True)])
        sampled += [sample.old_logprobs for sample in part if sample.old_logprobs is not None]
        trained += logprobs
    return fresh, agreement_metrics(sampled, trained) if sampled else {}
