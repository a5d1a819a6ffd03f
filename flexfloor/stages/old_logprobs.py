"""The policy that sampled, as the training model sees it."""

from __future__ import annotations

import dataclasses

from flexfloor.stages.rollout_metrics import agreement_metrics
from flexfloor.train.recompute import compute_logprobs
from flexfloor.train.types import Sample
from flexfloor.worker import Worker


def recompute(worker: Worker, parts: list[list[Sample]]) -> tuple[list[list[Sample]], dict[str, float]]:
    """Replace the sampler's log-probabilities by the training model's, and say how far apart they were."""
    actor, temperature = worker.config.actor, worker.config.rollout.temperature
    fresh, sampled, trained = [], [], []
    for part in parts:
        logprobs = compute_logprobs(
            worker.ddp,
            part,
            worker.groups,
            micro_batch_tokens=actor.micro_batch_tokens,
            temperature=temperature,
        )
        fresh.append([dataclasses.replace(s, old_logprobs=lp) for s, lp in zip(part, logprobs, strict=True)])
        sampled += [sample.old_logprobs for sample in part if sample.old_logprobs is not None]
        trained += logprobs
    return fresh, agreement_metrics(sampled, trained) if sampled else {}
