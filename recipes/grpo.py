"""Group relative policy optimisation on a mixture-of-experts model, one step after the other.

Source: Shao et al., "DeepSeekMath", arXiv 2402.03300. A step: generate n responses to each prompt of
a batch with the training model, score them, compare the responses of a prompt with one another, and
update the weights by the clipped policy-gradient loss. Every rank runs this function.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flexfloor.recipes.sft import warm_start

from flexfloor.config import Config
from flexfloor.data.sampler import PromptSampler
from flexfloor.data.types import Prompt
from flexfloor.data.uid import fingerprint
from flexfloor.journal import Journal
from flexfloor.stages.old_logprobs import recompute
from flexfloor.stages.resume import checkpoint_to_resume, checkpoints_folder, set_aside_from
from flexfloor.stages.rollout import Rollout, roll_out
from flexfloor.stages.rollout_metrics import rollout_metrics, sample_metrics
from flexfloor.stages.samples import make_samples, split_mini_batches
from flexfloor.stages.validate import validate
from flexfloor.stop import StopRequest
from flexfloor.train.checkpoint import load_checkpoint, save_checkpoint
from flexfloor.train.metrics import mean_over_updates
from flexfloor.train.objective import grpo_objective
from flexfloor.train.optimizer import build_optimizer, build_scheduler
from flexfloor.train.step import TrainStep
from flexfloor.train.types import Sample
from flexfloor.worker import Worker, set_up


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What the steps share and a checkpoint holds."""

    worker: Worker
    journal: Journal
    sampler: PromptSampler
    train_step: TrainStep
    first_step: int
    """First step that is still to be trained."""


def train(config: Config) -> None:
    """Train from the start or from the checkpoint that `trainer.resume_mode` finds."""
    stop = StopRequest()
    stop.listen()
    run = open_run(set_up(config), stop)
    journal, trainer = run.journal, config.trainer
    step = run.first_step - 1
    while step < trainer.total_training_steps and not stop.granted:
        step += 1
        with journal.step(step) as metrics:
            prompts = [run.worker.prompts["train"][index] for index in run.sampler.next_batch()]
            rollout = generate(run.worker, journal, prompts, step)
            metrics |= rollout_metrics(rollout)
            with journal.stage("advantage"):
                samples = make_samples(rollout.responses, config.algorithm)
                metrics |= sample_metrics(samples, len(rollout.responses))
                parts = split_mini_batches(
                    samples, [p.uid for p in prompts], config.actor.ppo_mini_batch_size
                )
            metrics |= update(run, parts)
            if due(step, trainer.test_freq, trainer.total_training_steps):
                metrics |= validate(run.worker, journal, step)
            if stop.grant() or due(step, trainer.save_freq, trainer.total_training_steps):
                save(run, step)
        if due(step, trainer.test_freq, trainer.total_training_steps):
            journal.draw(step)
    if stop.granted:
        journal.console.line(f"asked to stop: saved after step {step}, the same command goes on from there")
    journal.draw(step)
    journal.finish()


def generate(worker: Worker, journal: Journal, prompts: Sequence[Prompt], step: int) -> Rollout:
    """Generate and score the step's responses."""
    rollout, trainer = worker.config.rollout, worker.config.trainer
    with (
        journal.stage("rollout"),
        journal.rollout_progress(f"step {step} rollout", len(prompts) * rollout.n) as on_pass,
    ):
        return roll_out(
            worker,
            prompts,
            n=rollout.n,
            sampling=rollout,
            seed=f"{trainer.seed}/{step}",
            rescue_path=Path(trainer.default_local_dir) / f"failed_rollout_{step}.jsonl",
            on_pass=on_pass,
            on_scoring=journal.mark_idle,
        )


def update(run: Run, parts: list[list[Sample]]) -> dict[str, float]:
    """`actor.ppo_epochs` passes over the mini-batches; the metrics are means over the updates."""
    actor = run.worker.config.actor
    metrics: dict[str, float] = {}
    if actor.old_logprobs == "recompute":
        with run.journal.stage("old_log_prob"):
            parts, metrics = recompute(run.worker, parts)
    found = []
    with (
        run.journal.stage("update"),
        run.journal.console.progress("update", actor.ppo_epochs * len(parts), "mini-batches") as bar,
    ):
        for _ in range(actor.ppo_epochs):
            for part in parts:
                found.append(run.train_step.update(part))
                bar.advance()
    return metrics | mean_over_updates(found)


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
    checkpoint = checkpoint_to_resume(config.trainer)
    if checkpoint is not None:
        train_step = build_train_step(worker)
        extra = load_checkpoint(
            checkpoint, model=[worker.ddp], optimizer=train_step.optimizer, scheduler=train_step.scheduler
        )
        sampler.load_state_dict(extra["sampler"])
        first_step = extra["step"] + 1
        set_aside_from(config.trainer, first_step)
        journal = Journal(config, worker.layout, run_id=extra["run_id"], first_step=first_step)
        journal.console.line(f"resumed from {checkpoint}, {config.trainer.total_training_steps} steps in all")
        return Run(
            worker=worker, journal=journal, sampler=sampler, train_step=train_step, first_step=first_step
        )
    set_aside_from(config.trainer, 0)
    journal = Journal(config, worker.layout)
    with journal.step(0) as metrics:
        if config.sft.steps:
            metrics |= warm_start(worker, journal)
        # Built after the warm start: an optimizer may hold copies of the weights it was built from.
        train_step = build_train_step(worker)
        run = Run(worker=worker, journal=journal, sampler=sampler, train_step=train_step, first_step=1)
        if config.trainer.val_before_train:
            metrics |= validate(worker, journal, 0)
        if stop.grant() or config.trainer.save_freq > 0:
            save(run, 0)
    return run


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


def save(run: Run, step: int) -> None:
    """Write a checkpoint of the state after `step`."""
    with run.journal.stage("checkpoint"):
        save_checkpoint(
            checkpoints_folder(run.worker.config.trainer),
            step,
            model=[run.worker.ddp],
            optimizer=run.train_step.optimizer,
            scheduler=run.train_step.scheduler,
            extra={"step": step, "run_id": run.journal.run_id, "sampler": run.sampler.state_dict()},
            keep=run.worker.config.trainer.max_ckpt_to_keep,
        )


def due(step: int, every: int, last: int) -> bool:
    """Whether something that happens every so many steps, and after the last one, happens after `step`."""
    return every > 0 and (step % every == 0 or step == last)
