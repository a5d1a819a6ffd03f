"""GRPO's optimizer step as the configuration sets it."""

from __future__ import annotations

from flexfloor.train.objective import grpo_objective
from flexfloor.train.optimizer import build_optimizer, build_scheduler
from flexfloor.train.step import TrainStep
from flexfloor.worker import Worker


def build_train_step(worker: Worker) -> TrainStep:
    """GRPO's loss with an optimizer and a schedule of its own."""
    actor = worker.config.actor
    optimizer = build_optimizer(worker.ddp, actor.optim, worker.groups)
    objective = grpo_objective(
        actor,
        temperature=worker.config.rollout.temperature,
        max_response_length=worker.config.data.max_response_length,
    )
    return TrainStep(
        worker.ddp,
        optimizer,
        build_scheduler(optimizer, actor.optim),
        objective,
        worker.groups,
        micro_batch_tokens=actor.micro_batch_tokens,
    )
