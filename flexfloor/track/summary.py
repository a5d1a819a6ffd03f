"""What a run came to, from the metrics it logged: how it started, how it ended, where the time went.

Everything is read from the metrics on disk, so a resumed run sums up all of its steps.

Invariants:
- first and last are means over equally many steps, which do not overlap when there are two or more;
- a value that was never logged is None, not zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from flexfloor.track import names
from flexfloor.track.metrics import series

WINDOW = 5
"""Steps at either end that first and last are averaged over, in a run that is long enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """A metric at the start and at the end of a run."""

    first: float | None = None
    last: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a run came to."""

    num_steps: int
    """Training steps that logged a reward."""
    window: int
    """Steps at either end that `Ends` are averaged over."""
    reward: Ends = Ends()
    validation: Mapping[str, Ends] = field(default_factory=dict)
    """Mean validation score by data source: the first and the last one logged."""
    length_p50: Ends = Ends()
    """Response lengths in tokens: mean over steps of the step's median, ..."""
    length_p90: Ends = Ends()
    length_max: Ends = Ends()
    """... and the longest response of those steps."""
    throughput: Ends = Ends()
    """Response tokens per second of generation."""
    stage_seconds: Mapping[str, float] = field(default_factory=dict)
    """Seconds by stage over the whole run, longest first."""
    seconds: float | None = None
    """Seconds of all steps."""
    peak_gib: float | None = None
    """Most memory of all ranks together, in GiB."""

    @property
    def validation_mean(self) -> Ends:
        """The plain mean over data sources, each of which counts the same."""
        sources = list(self.validation.values())
        return Ends(
            first=_mean([ends.first for ends in sources if ends.first is not None]),
            last=_mean([ends.last for ends in sources if ends.last is not None]),
        )


def summarize(steps: Mapping[int, Mapping[str, float]], window: int = WINDOW) -> Summary:
    """Sum up a run.

    Args:
        steps: metrics by step, in order (`metrics.read_metrics`).
        window: most steps at either end to average over.
    """
    num_steps = len(series(steps, names.REWARD))
    window = max(1, min(window, num_steps // 2))

    def ends(name: str) -> Ends:
        values = list(series(steps, name).values())
        return Ends(first=_mean(values[:window]), last=_mean(values[-window:]))

    longest = list(series(steps, names.LENGTH_MAX).values())
    stages = _stage_seconds(steps)
    return Summary(
        num_steps=num_steps,
        window=window,
        reward=ends(names.REWARD),
        validation=_validation(steps),
        length_p50=ends(names.LENGTH_P50),
        length_p90=ends(names.LENGTH_P90),
        length_max=Ends(first=max(longest[:window], default=None), last=max(longest[-window:], default=None)),
        throughput=ends(names.THROUGHPUT),
        stage_seconds=stages,
        seconds=sum(stages.values()) if stages else None,
        peak_gib=max(series(steps, names.PEAK_MEMORY).values(), default=None),
    )


def validation_series(steps: Mapping[int, Mapping[str, float]]) -> dict[int, float]:
    """Mean over data sources of the validation score, for each step that was validated."""
    scores = {
        step: _mean([value for name, value in metrics.items() if names.validation_source(name)])
        for step, metrics in steps.items()
    }
    return {step: score for step, score in scores.items() if score is not None}


def _validation(steps: Mapping[int, Mapping[str, float]]) -> dict[str, Ends]:
    found: dict[str, list[float]] = {}
    for metrics in steps.values():
        for name, value in metrics.items():
            if source := names.validation_source(name):
                found.setdefault(source, []).append(value)
    return {source: Ends(first=values[0], last=values[-1]) for source, values in found.items()}


def _stage_seconds(steps: Mapping[int, Mapping[str, float]]) -> dict[str, float]:
    """Seconds by stage, longest first; what a step took beyond its named stages is "other"."""
    seconds: dict[str, float] = {}
    for metrics in steps.values():
        stages = {
            name.removeprefix(names.STAGE_SECONDS): value
            for name, value in metrics.items()
            if name.startswith(names.STAGE_SECONDS) and name != names.STEP_SECONDS
        }
        rest = metrics.get(names.STEP_SECONDS, 0.0) - sum(stages.values())
        if rest > 1e-3:
            stages["other"] = stages.get("other", 0.0) + rest
        for stage, value in stages.items():
            seconds[stage] = seconds.get(stage, 0.0) + value
    return dict(sorted(seconds.items(), key=lambda item: -item[1]))


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
