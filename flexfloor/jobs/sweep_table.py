"""The table at the end of a sweep: what each job was, how it ended and what it came to."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from flexfloor.config import Config
from flexfloor.config.sweep import SweepJob
from flexfloor.track.console import make_console
from flexfloor.track.metrics import read_metrics
from flexfloor.track.summary import Ends, summarize

NONE = "-"
"""Stands where there is no value."""


def show_table(command: str, jobs: Sequence[SweepJob], outcomes: Sequence[str]) -> None:
    """Print a row for each of the `jobs` of `command`, with its outcome and what its run folder holds."""
    columns, results = _RESULTS[command]
    rows = [
        (str(number), job.label, outcome, *results(job.config))
        for number, (job, outcome) in enumerate(zip(jobs, outcomes, strict=True), start=1)
    ]
    make_console(0).table(f"{len(jobs)} jobs", ("job", "settings", "outcome", *columns), rows, num_left=3)


def _of_training(config: Config) -> tuple[str, ...]:
    summary = summarize(read_metrics(Path(config.trainer.default_local_dir) / "metrics.jsonl"))
    return (
        str(summary.num_steps),
        _change(summary.reward),
        _change(summary.validation_mean),
        NONE if summary.seconds is None else f"{summary.seconds:.0f}",
    )


def _of_rollout(config: Config) -> tuple[str, ...]:
    path = Path(config.generate.output)
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    scores = [json.loads(line)["score"] for line in lines]
    return str(len(scores)), f"{np.mean(scores):.3f}" if scores else NONE


def _change(ends: Ends) -> str:
    if ends.first is None or ends.last is None:
        return NONE
    return f"{ends.first:.3f} to {ends.last:.3f}"


_RESULTS: dict[str, tuple[tuple[str, ...], Callable[[Config], tuple[str, ...]]]] = {
    "train": (("steps", "reward", "validation", "seconds"), _of_training),
    "rollout": (("responses", "mean score"), _of_rollout),
}
