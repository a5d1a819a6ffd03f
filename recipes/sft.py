"""Supervised warm start: the training prompts with their ground truth as answers."""

from __future__ import annotations

import numpy as np

from flexfloor.data.demonstrations import Demonstration, demonstrate
from flexfloor.data.sampler import PromptSampler
from flexfloor.journal import Journal
from flexfloor.train.objective import sft_objective
from flexfloor.train.optimizer import build_optimizer, build_scheduler
from flexfloor.train.step import TrainStep
from flexfloor.train.types import Sample
from flexfloor.worker import Worker


def warm_start(worker: Worker, journal: Journal) -> dict[str, float]:
    """Train `sft.steps` steps with an optimizer of their own; returns the metrics of the last one."""
    config, sft = worker.config, worker.config.sft
    rows = demonstrate(worker.prompts["train"], worker.tokenizer, config.data.max_response_length)
    sampler = PromptSampler(len(rows), sft.batch_size, shuffle=True, seed=config.data.seed)
    optimizer = build_optimizer(worker.ddp, sft.optim, worker.groups)
    train_step = TrainStep(
        worker.ddp,
        optimizer,
        build_scheduler(optimizer, sft.optim),
        sft_objective(),
        worker.groups,
        micro_batch_tokens=config.actor.micro_batch_tokens,
    )
    metrics: dict[str, float] = {}
    with journal.stage("sft"), journal.console.progress("warm start", total=sft.steps, unit="steps") as bar:
        for _ in range(sft.steps):
            metrics = train_step.update([_sample(rows[index]) for index in sampler.next_batch()])
            bar.advance(note=f"loss {metrics['sft/loss']:.3f}")
    return metrics


def _sample(row: Demonstration) -> Sample:
    return Sample(
        uid=row.uid,
        response_index=0,
        prompt_ids=np.array(row.prompt_ids, dtype=np.int64),
        response_ids=np.array(row.response_ids, dtype=np.int64),
    )
