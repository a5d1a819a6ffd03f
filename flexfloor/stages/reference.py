"""The reference policy as a run uses it: where it comes from, and its log-probabilities.

The reference is the policy that GRPO began with. A checkpoint holds it, so that a resumed run is held
near the same one; from a checkpoint without one, the reference is that checkpoint's policy.

Invariants:
- A run without a KL term keeps no reference and makes no pass for one.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from flexfloor.config import Config
from flexfloor.stages.old_logprobs import fill_in
from flexfloor.train.checkpoint import has_reference, load_weights
from flexfloor.train.reference import ReferenceWeights
from flexfloor.train.types import Key, Sample
from flexfloor.worker import Worker

logger = logging.getLogger(__name__)


def needs_reference(config: Config) -> bool:
    """Whether the run has a KL term, in the loss or in the reward."""
    return config.actor.use_kl_loss or config.algorithm.use_kl_in_reward


def keep_reference(worker: Worker, checkpoint: Path | None = None) -> ReferenceWeights | None:
    """Keep the reference, None without a KL term; all ranks call it.

    Args:
        checkpoint: what the model was loaded from; None when the run begins.
    """
    if not needs_reference(worker.config):
        return None
    reference = ReferenceWeights(worker.ddp.module)
    if checkpoint is None:
        return reference
    if has_reference(checkpoint):
        with reference.swapped_in():
            load_weights(checkpoint, model=[worker.ddp], of_reference=True)
    elif worker.layout.rank == 0:
        logger.warning(
            "%s holds no reference policy: its own policy is the reference from here on", checkpoint
        )
    return reference


def add_reference(
    worker: Worker,
    reference: ReferenceWeights,
    parts: Sequence[list[Sample]],
    known: Mapping[Key, np.ndarray] | None = None,
) -> list[list[Sample]]:
    """Give each sample the reference's log-probabilities; one swap for all mini-batches.

    Args:
        known: those that were found while others generated.
    """
    with reference.swapped_in():
        found = [fill_in(worker, part, known or {}) for part in parts]
    return [
        [dataclasses.replace(s, ref_logprobs=lp) for s, lp in zip(part, logprobs, strict=True)]
        for part, logprobs in zip(parts, found, strict=True)
    ]
