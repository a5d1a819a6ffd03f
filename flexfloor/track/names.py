"""The metric names that the console, the summary and the picture read.

They are verl's where verl has one; a run may log many more than stand here.
"""

from __future__ import annotations

import re

REWARD = "critic/score/mean"
"""Mean over the step's responses of what the scorer gave."""

LENGTH_MEAN = "response_length/mean"
LENGTH_P50 = "response_length/p50"
LENGTH_P90 = "response_length/p90"
LENGTH_MAX = "response_length/max"
THROUGHPUT = "rollout/throughput"
"""Response tokens per second of generation."""

ENTROPY = "actor/entropy"
GRAD_NORM = "actor/grad_norm"
LEARNING_RATE = "actor/lr"
SFT_LOSS = "sft/loss"

PEAK_MEMORY = "perf/peak_memory_gib"
"""Sum over ranks of the most memory each has held since it started, in GiB."""

STEP_SECONDS = "timing_s/step"
STAGE_SECONDS = "timing_s/"
"""Prefix of the seconds of each stage of a step."""

_VALIDATION = re.compile(r"val-core/(?P<source>.+)/mean@\d+")


def validation_source(name: str) -> str | None:
    """The data source whose mean validation score the metric is, or None if it is another metric."""
    match = _VALIDATION.fullmatch(name)
    return match["source"] if match else None
