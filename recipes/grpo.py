"""Group relative policy optimisation on a mixture-of-experts model, one step after the other.

Source: Shao et al., "DeepSeekMath", arXiv 2402.03300. A step: generate n responses to each prompt of
a batch with the training model, score them, compare the responses of a prompt with one another, and
update the weights by the clipped policy-gradient loss. Every rank runs this function.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from flexfloor.config import Config
from flexfloor.data.types import Prompt
from flexfloor.launch.shared_folder import require_shared_folder
from flexfloor.overlap.result import EarlyResult
from flexfloor.recipes.grpo_run import Run, open_run, save
from flexfloor.stages.advantages import form_advantages
from flexfloor.stages.early_update import EarlyUpdate
from flexfloor.stages.lengths import prediction_metrics, rollout_lengths
from flexfloor.stages.old_logprobs import recompute
from flexfloor.stages.reference import add_reference
from flexfloor.stages.rollout import Rollout, roll_out
from flexfloor.stages.rollout_metrics import rollout_metrics
from flexfloor.stages.samples import make_samples, split_mini_batches
from flexfloor.stages.validate import validate
from flexfloor.stop import StopRequest
from flexfloor.train.early_part import EarlyPart
from flexfloor.train.metrics import mean_over_updates
from flexfloor.train.types import Sample
from flexfloor.worker import set_up

MiniBatches = list[list[Sample]]


def train(config: Config) -> None:
    """Train from the start or from the checkpoint that `trainer.resume_mode` finds."""
    stop = StopRequest()
    stop.listen()
    worker = set_up(config)
    require_shared_folder("trainer.default_local_dir", Path(config.trainer.default_local_dir))
    run = open_run(worker, stop)
    journal, trainer = run.journal, config.trainer
    step = run.first_step - 1
    while step < trainer.total_training_steps and not stop.granted:
        step += 1
        with journal.step(step) as metrics:
            prompts = [run.worker.prompts["train"][index] for index in run.sampler.next_batch()]
            early = run.early.begin(prompts, journal, step) if run.early else None
            rollout = generate(run, prompts, step, early)
            metrics |= rollout_metrics(rollout)
            run.worker.planner.learn([each.response for each in rollout.responses], rollout.stats, step)
            lengths = rollout_lengths(rollout, limit=config.data.max_response_length)
            journal.lengths(step, lengths)
            metrics |= prediction_metrics(lengths)
            samples = make_samples(rollout.responses, config.algorithm)
            parts = split_mini_batches(samples, [p.uid for p in prompts], config.actor.ppo_mini_batch_size)
            parts, compared = compare_policies(run, parts, rollout.early)
            with journal.stage("advantage"):
                parts, formed = form_advantages(parts, config.algorithm)
            metrics |= compared | formed
            if early:
                metrics["overlap/trained_fraction"] = rollout.early.trained_fraction(samples)
            metrics["critic/trained_fraction"] = len(samples) / len(rollout.responses)
            metrics |= update(run, parts, early.part(rollout.early) if early else None)
            is_best = False
            if due(step, trainer.test_freq, trainer.total_training_steps):
                metrics |= validate(run.worker, journal, step)
                is_best = run.best.note(step, metrics)
            if stop.grant() or is_best or due(step, trainer.save_freq, trainer.total_training_steps):
                save(run, step)
        if due(step, trainer.test_freq, trainer.total_training_steps):
            journal.draw(step)
    if stop.granted:
        journal.console.line(f"asked to stop: saved after step {step}, the same command goes on from there")
    run.worker.planner.write(journal.folder)
    journal.draw(step)
    journal.finish()


def generate(run: Run, prompts: Sequence[Prompt], step: int, early: EarlyUpdate | None) -> Rollout:
    """Generate and score the step's responses; ranks that are released meanwhile begin with the update."""
    worker, journal = run.worker, run.journal
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
            forced=worker.planner.forced_lengths(prompts, rollout.n, step),
            on_pass=on_pass,
            on_shrink=journal.shrinking,
            on_generated=journal.generated,
            on_free=run.bring_reference,
            early=early,
        )


def compare_policies(
    run: Run, parts: MiniBatches, early: EarlyResult
) -> tuple[MiniBatches, dict[str, float]]:
    """Add what the training model and the reference make of the responses, where it is asked for."""
    metrics: dict[str, float] = {}
    if run.worker.config.actor.old_logprobs == "recompute":
        with run.journal.stage("old_log_prob"):
            parts, metrics = recompute(run.worker, parts, early.logprobs("old_logprobs"))
    if run.reference is not None:
        with run.journal.stage("ref"):
            parts = add_reference(run.worker, run.reference, parts, early.logprobs("ref_logprobs"))
    return parts, metrics


def update(run: Run, parts: MiniBatches, early: EarlyPart | None) -> dict[str, float]:
    """`actor.ppo_epochs` passes over the mini-batches; the metrics are means over the updates.

    Args:
        early: what is done of the first mini-batch's update.
    """
    actor = run.worker.config.actor
    found = []
    with (
        run.journal.stage("update"),
        run.journal.console.progress("update", actor.ppo_epochs * len(parts), "mini-batches") as bar,
        run.optimizer_here(),
    ):
        for _ in range(actor.ppo_epochs):
            for part in parts:
                found.append(run.train_step.update(part, early))
                early = None
                run.worker.planner.learn_training(*run.train_step.take_timing())
                bar.advance()
    return mean_over_updates(found)


def due(step: int, every: int, last: int) -> bool:
    """Whether something that happens every so many steps, and after the last one, happens after `step`."""
    return every > 0 and (step % every == 0 or step == last)
