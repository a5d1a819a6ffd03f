"""What stands in a run's folder to look at: picture, trace and page, all from the files beside them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from flexfloor.ledger.pictures import write_pictures
from flexfloor.ledger.types import StepRecord
from flexfloor.report.data import gather
from flexfloor.report.page import render

PAGE_FILE = "report.html"


def write_report(
    folder: Path,
    steps: Sequence[Sequence[StepRecord]],
    metrics: Mapping[int, Mapping[str, float]],
    run_name: str,
) -> Path:
    """Write picture, trace and page of the run in `folder`.

    Args:
        folder: of the run.
        steps: its ledger, at least one step.
        metrics: by step.
        run_name: what the trace calls the run.

    Returns: the picture.

    Raises:
        OSError: one of them cannot be written.
        FlexFloorError: a line before the last of the file of lengths is broken.
    """
    picture = write_pictures(folder, steps, metrics, run_name)
    write_page(folder, steps, metrics)
    return picture


def write_page(
    folder: Path, steps: Sequence[Sequence[StepRecord]], metrics: Mapping[int, Mapping[str, float]]
) -> Path:
    """Write `report.html` of the run in `folder`, whole or not at all, and return it.

    Args:
        folder: of the run.
        steps: its ledger, at least one step.
        metrics: by step.

    Raises:
        OSError: the page cannot be written.
        FlexFloorError: a line before the last of the file of lengths is broken.
    """
    page = folder / PAGE_FILE
    partial = page.with_name(page.name + ".partial")
    text = render(gather(folder, steps, metrics))
    partial.write_text(text, encoding="utf-8", errors="backslashreplace")
    os.replace(partial, page)
    return page
