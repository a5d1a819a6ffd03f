"""Generate and score only: responses to the prompts of a split, one jsonl line each.

The weights are those of the checkpoint that `trainer.resume_mode` finds, else those at `model.path`, else the
initial ones.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from flexfloor import heartbeat
from flexfloor.config import Config
from flexfloor.data.responses import write_responses
from flexfloor.stages.memory import explaining_shortage
from flexfloor.stages.progress import rollout_progress
from flexfloor.stages.resume import checkpoint_to_resume, require_same_model
from flexfloor.stages.rollout import ScoredResponse, roll_out
from flexfloor.track.console import make_console
from flexfloor.train.checkpoint import load_weights
from flexfloor.train.transfer_time import transfer_seconds
from flexfloor.worker import Worker, set_up


def generate(config: Config) -> None:
    """Write `generate.output`, on all ranks together."""
    worker = set_up(config)
    console = make_console(worker.layout.rank)
    checkpoint = checkpoint_to_resume(config.trainer)
    if checkpoint is not None:
        require_same_model(checkpoint, worker.model_identity)
        with heartbeat.stage("resume"), heartbeat.allow(transfer_seconds(worker.ddp)):
            load_weights(checkpoint, model=[worker.ddp])
    console.line(f"weights: {checkpoint or config.model.path or 'initial'}")
    responses = respond(worker, console)
    if worker.layout.rank == 0:
        output = Path(config.generate.output)
        write_responses(output, [each.saved() for each in responses])
        scores = [each.result.score for each in responses]
        console.line(f"{len(responses)} responses, mean score {np.mean(scores):.3f}: {output}")


def respond(worker: Worker, console) -> list[ScoredResponse]:
    """Responses to the split's prompts, sampled as that split is in training."""
    config = worker.config
    prompts = worker.prompts[config.generate.split][: config.generate.max_prompts]
    sampling = config.rollout if config.generate.split == "train" else config.rollout.val
    with (
        heartbeat.stage("rollout"),
        explaining_shortage("rollout", config),
        rollout_progress(console, worker.layout, "rollout", len(prompts) * sampling.n) as on_pass,
    ):
        return roll_out(
            worker,
            prompts,
            n=sampling.n,
            sampling=sampling,
            seed=f"{config.trainer.seed}/{config.generate.split}",
            rescue_path=Path(config.generate.output).with_suffix(".failed.jsonl"),
            on_pass=on_pass,
        ).responses
