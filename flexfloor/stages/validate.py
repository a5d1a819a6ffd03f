"""Validation: generate for the validation prompts and say how good the answers are.

With N responses to a prompt: `mean@N` is their mean score, `best@N/mean` the best one's, `maj@N/mean`
the score of the answer that most of them gave (the earliest of equally frequent ones); each is then
averaged over the prompts of a data source.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from flexfloor.data.types import Prompt
from flexfloor.journal import Journal
from flexfloor.stages.rollout import ScoredResponse, roll_out
from flexfloor.track.samples import SampleRow
from flexfloor.worker import Worker


def validate(worker: Worker, journal: Journal, step: int) -> dict[str, float]:
    """Validate, log a table of samples and return `val-core/*`; nothing without validation prompts."""
    prompts = worker.prompts["val"]
    if not prompts:
        return {}
    batch_size = worker.config.data.val_batch_size or len(prompts)
    responses: list[ScoredResponse] = []
    with journal.stage("validation"):
        for start in range(0, len(prompts), batch_size):
            responses += _batch(worker, journal, prompts[start : start + batch_size], step)
    rows = [_row(each) for each in responses[:: max(1, worker.config.rollout.val.n)]]
    journal.samples(rows[: worker.config.trainer.log_val_generations], step)
    return validation_metrics(responses)


def _batch(worker: Worker, journal: Journal, prompts: Sequence[Prompt], step: int) -> list[ScoredResponse]:
    sampling, trainer = worker.config.rollout.val, worker.config.trainer
    with journal.rollout_progress("validation", len(prompts) * sampling.n) as on_pass:
        rollout = roll_out(
            worker,
            prompts,
            n=sampling.n,
            sampling=sampling,
            # the same noise at every validation, so that two of them differ by the weights alone
            seed=f"{trainer.seed}/val",
            rescue_path=Path(trainer.default_local_dir) / f"failed_validation_{step}.jsonl",
            on_pass=on_pass,
            on_shrink=journal.shrinking,
            on_generated=journal.generated,
        )
    return rollout.responses


def validation_metrics(responses: Sequence[ScoredResponse]) -> dict[str, float]:
    """`val-core/<source>/{mean@N,best@N/mean,maj@N/mean}` and mean `val-aux/<source>/<name>` of extras."""
    by_source: dict[str, dict[str, list[ScoredResponse]]] = {}
    for each in responses:
        groups = by_source.setdefault(each.prompt.data_source, {})
        groups.setdefault(each.prompt.uid, []).append(each)
    metrics: dict[str, float] = {}
    for source, groups in by_source.items():
        metrics |= _source_metrics(source, list(groups.values()))
    return metrics


def _source_metrics(source: str, groups: list[list[ScoredResponse]]) -> dict[str, float]:
    n = len(groups[0])
    scores = np.array([[each.result.score for each in group] for group in groups])
    metrics = {f"val-core/{source}/mean@{n}": float(scores.mean())}
    if n > 1:
        metrics[f"val-core/{source}/best@{n}/mean"] = float(scores.max(axis=1).mean())
        majority = [_majority_score(group) for group in groups]
        metrics[f"val-core/{source}/maj@{n}/mean"] = float(np.mean(majority))
    extras: dict[str, list[float]] = {}
    for each in (each for group in groups for each in group):
        for name, value in each.result.extra.items():
            extras.setdefault(name, []).append(value)
    return metrics | {f"val-aux/{source}/{name}": float(np.mean(found)) for name, found in extras.items()}


def _majority_score(group: Sequence[ScoredResponse]) -> float:
    answers = [each.text.strip() for each in group]
    answer, _ = Counter(answers).most_common(1)[0]
    return group[answers.index(answer)].result.score


def _row(each: ScoredResponse) -> SampleRow:
    return SampleRow(
        uid=each.prompt.uid,
        prompt=each.prompt.text,
        response=each.text,
        ground_truth=str(each.prompt.ground_truth),
        score=each.result.score,
    )
