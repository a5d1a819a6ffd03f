"""A run's picture and trace from what its folder holds: `ledger.jsonl` and `metrics.jsonl`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from flexfloor.ledger.panels import Curves
from flexfloor.ledger.store import read_ledger
from flexfloor.ledger.timeline import draw_timeline
from flexfloor.ledger.trace import write_trace
from flexfloor.track import names
from flexfloor.track.metrics import series
from flexfloor.track.summary import validation_series

LEDGER_FILE = "ledger.jsonl"
PICTURE_FILE = "timeline.png"
TRACE_FILE = "trace.json"


def write_pictures(folder: Path, metrics: Mapping[int, Mapping[str, float]], run_name: str) -> Path:
    """Write `timeline.png` and `trace.json` of the steps in the ledger, of which there is at least one.

    Args:
        folder: of the run.
        metrics: by step, for the panels below the time line.
        run_name: what the trace calls the run.

    Returns: the picture.
    """
    steps = read_ledger(folder / LEDGER_FILE)
    curves = Curves(
        reward=series(metrics, names.REWARD),
        validation=validation_series(metrics),
        length_p50=series(metrics, names.LENGTH_P50),
        length_p90=series(metrics, names.LENGTH_P90),
    )
    write_trace(steps, folder / TRACE_FILE, run_name)
    return draw_timeline(steps, folder / PICTURE_FILE, curves=curves)
