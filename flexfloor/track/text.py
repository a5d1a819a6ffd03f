"""The lines and table cells that the console shows, as plain text.

Only ASCII is used, so that any terminal or log file can hold it.
"""

from __future__ import annotations

from collections.abc import Mapping

from flexfloor.track import names
from flexfloor.track.summary import Ends, Summary

VALIDATION = "validation"
"""Stands for the mean over data sources of the validation score."""

STEP_PARTS = (
    ("reward", names.REWARD, ".3f"),
    ("val", VALIDATION, ".3f"),
    ("sft loss", names.SFT_LOSS, ".4f"),
    ("length", names.LENGTH_MEAN, ".1f"),
    ("entropy", names.ENTROPY, ".3f"),
    ("grad norm", names.GRAD_NORM, ".3g"),
    ("tokens/s", names.THROUGHPUT, ",.0f"),
)
"""Label, metric and format of what a step's line shows, as far as it was logged."""


def step_line(step: int, num_steps: int, metrics: Mapping[str, float]) -> str:
    """One line that says how a step went."""
    values = {**metrics, VALIDATION: _validation(metrics)}
    width = len(str(num_steps))
    parts = [f"step {step:>{width}}/{num_steps}"]
    for label, name, form in STEP_PARTS:
        value = values.get(name)
        if value is not None:
            parts.append(f"{label} {value:{form}}")
    if names.STEP_SECONDS in metrics:
        parts.append(_seconds(metrics))
    return " | ".join(parts)


def _validation(metrics: Mapping[str, float]) -> float | None:
    scores = [value for name, value in metrics.items() if names.validation_source(name)]
    return sum(scores) / len(scores) if scores else None


def _seconds(metrics: Mapping[str, float]) -> str:
    """Seconds of the step and of its two longest stages."""
    stages = {
        name.removeprefix(names.STAGE_SECONDS): value
        for name, value in metrics.items()
        if name.startswith(names.STAGE_SECONDS) and name != names.STEP_SECONDS
    }
    longest = sorted(stages, key=lambda stage: -stages[stage])[:2]
    detail = ", ".join(f"{stage} {stages[stage]:.1f}" for stage in longest)
    return f"{metrics[names.STEP_SECONDS]:.1f} s" + (f" ({detail})" if detail else "")


def summary_rows(summary: Summary) -> list[tuple[str, str, str]]:
    """Rows of the closing table: what, at the start, at the end."""
    rows = [("mean reward", *_pair(summary.reward, ".3f"))]
    for source, ends in summary.validation.items():
        rows.append((f"validation accuracy, {source}", *_pair(ends, ".3f")))
    rows.append(("response length p50 / p90 / max", _lengths(summary, "first"), _lengths(summary, "last")))
    rows.append(("tokens/s of generation", *_pair(summary.throughput, ",.0f")))
    return [row for row in rows if row[1:] != ("-", "-")]


def stage_rows(summary: Summary) -> list[tuple[str, str, str]]:
    """Rows of the table of time: stage, seconds, share of all; the sum last."""
    stages = [*summary.stage_seconds.items(), ("all", summary.seconds or 0.0)]
    total = max(summary.seconds or 0.0, 1e-9)
    return [(stage, f"{seconds:,.1f}", f"{seconds / total:.0%}") for stage, seconds in stages]


def summary_title(summary: Summary) -> str:
    """What the run was, and what its start and end are."""
    steps = "one step" if summary.window == 1 else f"means of {summary.window} steps"
    return f"{summary.num_steps} steps (start and end: {steps}; validation: first and last)"


def _pair(ends: Ends, form: str) -> tuple[str, str]:
    return _number(ends.first, form), _number(ends.last, form)


def _lengths(summary: Summary, end: str) -> str:
    lengths = (summary.length_p50, summary.length_p90, summary.length_max)
    numbers = [_number(getattr(ends, end), ".0f") for ends in lengths]
    return "-" if set(numbers) == {"-"} else " / ".join(numbers)


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else f"{value:{form}}"
