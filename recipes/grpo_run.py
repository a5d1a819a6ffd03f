"""What a GRPO run begins with, goes on from, and saves."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from flexfloor import heartbeat
from flexfloor.data.sampler import PromptSampler
from flexfloor.data.uid import fingerprint
from flexfloor.journal import Journal
from flexfloor.recipes.sft import warm_start
from flexfloor.stages.best import BestStep
from flexfloor.stages.early_update import EarlyTraining, train_early
from flexfloor.stages.origin import origin_of
from flexfloor.stages.own_checkpoints import checkpoints_folder
from flexfloor.stages.reference import keep_reference
from flexfloor.stages.resume import checkpoint_to_resume, require_same_model, set_aside_from
from flexfloor.stages.train_step import build_train_step, send_to_host
from flexfloor.stages.validate import validate
from flexfloor.stop import StopRequest
from flexfloor.train.checkpoint import load_checkpoint, save_checkpoint
from flexfloor.train.optimizer_on_host import OptimizerOnHost
from flexfloor.train.reference import ReferenceWeights
from flexfloor.train.step import TrainStep
from flexfloor.train.transfer_time import transfer_seconds
from flexfloor.worker import Worker


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What the steps share and a checkpoint holds."""

    worker: Worker
    journal: Journal
    sampler: PromptSampler
    train_step: TrainStep
    reference: ReferenceWeights | None
    """None without a KL term."""
    early: EarlyTraining | None
    """None where the update waits for the end of generation."""
    best: BestStep
    on_host: OptimizerOnHost | None
    """None where the optimizer's state stays on the device."""
    first_step: int
    """First step that is still to be trained."""

    def optimizer_here(self) -> AbstractContextManager[None]:
        """Opened around what needs the optimizer's state."""
        return self.on_host.here() if self.on_host else nullcontext()

    def bring_reference(self) -> None:
        """Called when the policy has generated; it stays where it still compares its own responses first."""
        if self.reference and self.worker.config.actor.old_logprobs != "recompute":
            self.reference.bring()


def open_run(worker: Worker, stop: StopRequest) -> Run:
    """Continue from a checkpoint, or begin: warm start, first validation, first checkpoint."""
    config = worker.config
    sampler = PromptSampler(
        len(worker.prompts["train"]),
        config.data.train_batch_size,
        shuffle=config.data.shuffle,
        seed=config.data.seed,
        fingerprint=fingerprint(worker.prompts["train"]),
    )
    best = BestStep(checkpoints_folder(config.trainer), enabled=config.trainer.save_best)
    with heartbeat.stage("resume"), heartbeat.allow(transfer_seconds(worker.ddp)):
        checkpoint = checkpoint_to_resume(config.trainer)
    if checkpoint is None:
        return _begin(worker, sampler, best, stop)
    return _resume(worker, sampler, best, checkpoint)


def _resume(worker: Worker, sampler: PromptSampler, best: BestStep, checkpoint: Path) -> Run:
    trainer = worker.config.trainer
    require_same_model(checkpoint, worker.model_identity)
    train_step = build_train_step(worker)
    with heartbeat.stage("resume"), heartbeat.allow(transfer_seconds(worker.ddp)):
        extra = load_checkpoint(
            checkpoint, model=[worker.ddp], optimizer=train_step.optimizer, scheduler=train_step.scheduler
        )
        reference = keep_reference(worker, checkpoint)
    sampler.load_state_dict(extra["sampler"])
    worker.planner.load_state_dict(extra["planner"])
    first_step = extra["step"] + 1
    set_aside_from(trainer, first_step)
    best.load_state_dict(extra["best"])
    best.link()
    journal = Journal(worker.config, worker.layout, run_id=extra["run_id"], first_step=first_step)
    journal.console.line(f"resumed from {checkpoint}, {trainer.total_training_steps} steps in all")
    return Run(
        worker=worker,
        journal=journal,
        sampler=sampler,
        train_step=train_step,
        reference=reference,
        early=train_early(worker, train_step, reference),
        best=best,
        on_host=send_to_host(worker, train_step),
        first_step=first_step,
    )


def _begin(worker: Worker, sampler: PromptSampler, best: BestStep, stop: StopRequest) -> Run:
    config = worker.config
    set_aside_from(config.trainer, 0)
    best.link()
    journal = Journal(config, worker.layout)
    with journal.step(0) as metrics:
        if config.sft.steps:
            metrics |= warm_start(worker, journal)
        # Built after the warm start: an optimizer may hold copies of the weights it was built from.
        train_step, reference = build_train_step(worker), keep_reference(worker)
        run = Run(
            worker=worker,
            journal=journal,
            sampler=sampler,
            train_step=train_step,
            reference=reference,
            early=train_early(worker, train_step, reference),
            best=best,
            on_host=send_to_host(worker, train_step),
            first_step=1,
        )
        is_best = False
        if config.trainer.val_before_train:
            metrics |= validate(worker, journal, 0)
            is_best = best.note(0, metrics)
        if stop.grant() or is_best or config.trainer.save_freq > 0:
            save(run, 0)
    return run


def save(run: Run, step: int) -> None:
    """Write a checkpoint of the state after `step`."""
    allowed = heartbeat.allow(transfer_seconds(run.worker.ddp))
    with run.journal.stage("checkpoint"), allowed, run.optimizer_here():
        if run.on_host:
            run.on_host.ready()
        save_checkpoint(
            checkpoints_folder(run.worker.config.trainer),
            step,
            model=[run.worker.ddp],
            optimizer=run.train_step.optimizer,
            scheduler=run.train_step.scheduler,
            reference=run.reference,
            extra={
                "step": step,
                "run_id": run.journal.run_id,
                "sampler": run.sampler.state_dict(),
                "model": run.worker.model_identity,
                "origin": origin_of(run.worker.config),
                "best": run.best.state_dict(),
                "planner": run.worker.planner.state_dict(),
            },
            keep=run.worker.config.trainer.max_ckpt_to_keep,
            spare=run.best.spared,
        )
        run.best.link()
        run.worker.planner.write(Path(run.worker.config.trainer.default_local_dir))
