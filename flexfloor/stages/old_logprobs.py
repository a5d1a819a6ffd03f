"""The policy that sampled, as the training model sees it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from flexfloor.stages.rollout_metrics import agreement_metrics
from flexfloor.train.recompute import compute_logprobs
from flexfloor.train.types import Key, Sample
from flexfloor.worker import Worker


def training_logprobs(worker: Worker, part: list[Sample]) -> list[np.ndarray]:
    """log pi of a mini-batch's response tokens, float64 [R] each, by the model's weights as they are."""
    return compute_logprobs(
        worker.ddp,
        part,
        worker.groups.dp_cp,
        micro_batch_tokens=worker.config.actor.micro_batch_tokens,
        temperature=worker.config.rollout.temperature,
    )


def fill_in(worker: Worker, part: Sequence[Sample], known: Mapping[Key, np.ndarray]) -> list[np.ndarray]:
    """As `training_logprobs`, but only of samples that are not `known`; those keep what they have."""
    unknown = [sample for sample in part if sample.key not in known]
    found = dict(known) | dict(
        zip((sample.key for sample in unknown), training_logprobs(worker, unknown), strict=True)
    )
    return [found[sample.key] for sample in part]


def recompute(
    worker: Worker, parts: list[list[Sample]], known: Mapping[Key, np.ndarray] | None = None
) -> tuple[list[list[Sample]], dict[str, float]]:
    """Replace the sampler's log-probabilities by the training model's, and say how far apart they were.

    Args:
        known: those that were found while others generated.
    """
    fresh, sampled, trained = [], [], []
    for part in parts:
        logprobs = fill_in(worker, part, known or {})
        fresh.append([dataclasses.replace(s, old_logprobs=lp) for s, lp in zip(part, logprobs, strict=True)])
        sampled += [sample.old_logprobs for sample in part if sample.old_logprobs is not None]
        trained += logprobs
    return fresh, agreement_metrics(sampled, trained) if sampled else {}
