"""A run's picture and trace from its ledger and metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from flexfloor.ledger.panels import Curves
from flexfloor.ledger.timeline import draw_timeline
from flexfloor.ledger.trace import write_trace
from flexfloor.ledger.types import StepRecord
from flexfloor.track import names
from flexfloor.track.metrics import series
from flexfloor.track.summary import validation_series

LEDGER_FILE = "ledger.jsonl"
PICTURE_FILE = "timeline.png"
TRACE_FILE = "trace.json"


def write_pictures(
    folder: Path,
    steps: Sequence[Sequence[StepRecord]],
    metrics: Mapping[int, Mapping[str, float]],
    run_name: str,
) -> Path:
    """Write `timeline.png` and `trace.json`.

    Args:
        folder: of the run.
        steps: the run's ledger, at least one step.
        metrics: by step, for the panels below the time line.
        run_name: what the trace calls the run.

    Returns: the picture.
    """
    curves = Curves(
        reward=series(metrics, names.REWARD),
        validation=validation_series(metrics),
        length_p50=series(metrics, names.LENGTH_P50),
        length_p90=series(metrics, names.LENGTH_P90),
    )
    write_trace(steps, folder / TRACE_FILE, run_name)
    return draw_timeline(steps, folder / PICTURE_FILE, curves=curves)
