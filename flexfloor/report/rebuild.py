"""`flexfloor report`: page, picture, trace and closing table of a run, from its folder alone.

Invariants:
- No rank is started, and only `report.html`, `timeline.png` and `trace.json` are written.
- What a run that was killed has left is enough, also with its last line cut off.
"""

from __future__ import annotations

from pathlib import Path

from flexfloor.errors import DataError, FlexFloorError
from flexfloor.ledger.pictures import LEDGER_FILE, PICTURE_FILE, TRACE_FILE
from flexfloor.ledger.store import read_ledger
from flexfloor.report.write import PAGE_FILE, write_report
from flexfloor.track.console import Console
from flexfloor.track.metrics import read_metrics
from flexfloor.track.summary import summarize
from flexfloor.track.tracker import METRICS_FILE


def rebuild(folder: Path) -> None:
    """Write page, picture and trace of the run in `folder` again and print its closing table.

    Raises:
        DataError: the folder holds no step of a run.
        FlexFloorError: it cannot be written, or a line before the last of a file is broken.
    """
    if not folder.is_dir():
        raise DataError(f"{folder}: there is no such folder; name a run's, trainer.default_local_dir")
    steps = read_ledger(folder / LEDGER_FILE)
    if not steps:
        raise DataError(
            f"{folder} holds no run, no step in {LEDGER_FILE}; name trainer.default_local_dir of a run that "
            "finished a step"
        )
    metrics = read_metrics(folder / METRICS_FILE)
    try:
        write_report(folder, steps, metrics, folder.resolve().name)
    except OSError as error:
        raise FlexFloorError(
            f"{folder}: cannot write {PAGE_FILE}, {PICTURE_FILE} and {TRACE_FILE}: {error}"
        ) from error
    console = Console()
    console.summary(summarize(metrics))
    console.line(
        f"page, picture and trace: {folder / PAGE_FILE}, {folder / PICTURE_FILE}, {folder / TRACE_FILE}"
    )
