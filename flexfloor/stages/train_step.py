"""GRPO's optimizer step as the configuration sets it."""

from __future__ import annotations

import logging

from flexfloor import device
from flexfloor.train.objective import grpo_objective
from flexfloor.train.optimizer import build_optimizer, build_scheduler
from flexfloor.train.optimizer_on_host import OptimizerOnHost
from flexfloor.train.step import TrainStep
from flexfloor.worker import Worker

log = logging.getLogger(__name__)


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


def send_to_host(worker: Worker, train_step: TrainStep) -> OptimizerOnHost | None:
    """The optimizer's state, gone to the host if `actor.offload_optimizer` asks for it and there is a GPU."""
    if not worker.config.actor.offload_optimizer:
        return None
    if device.is_cpu_host():
        if worker.layout.rank == 0:
            log.warning("actor.offload_optimizer = true: of no effect on CPUs, whose memory is the host's")
        return None
    on_host = OptimizerOnHost(train_step.optimizer, worker.model)
    on_host.leave()
    return on_host
