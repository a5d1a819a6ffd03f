"""The demo: the tiny-mixtral recipe from start to picture, and one JSON line of what it came to.

Whatever stands on the command line is passed on as overrides of the recipe.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path

from flexfloor.cli import main as flexfloor
from flexfloor.track.metrics import read_metrics
from flexfloor.track.summary import summarize
from flexfloor.track.tracker import METRICS_FILE

FOLDER = Path("runs/flexfloor/demo")


def main() -> int:
    """Run the demo anew in `runs/flexfloor/demo`; returns the exit status of the run."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    start = time.perf_counter()
    overrides = [f"trainer.default_local_dir={FOLDER}", "trainer.experiment_name=demo", *sys.argv[1:]]
    status = flexfloor(["train", "recipe=tiny-mixtral", *overrides])
    if status == 0:
        sys.stdout.write(json.dumps(figures(time.perf_counter() - start)) + "\n")
    return status


def figures(seconds: float) -> dict[str, float | str | None]:
    """What the run came to, from the metrics it wrote."""
    summary = summarize(read_metrics(FOLDER / METRICS_FILE))
    found = {
        "reward_first": summary.reward.first,
        "reward_last": summary.reward.last,
        "val_before": summary.validation_mean.first,
        "val_after": summary.validation_mean.last,
        "seconds": seconds,
        "peak_gib": summary.peak_gib,
    }
    return {
        "bench": "demo",
        **{name: None if value is None else round(value, 3) for name, value in found.items()},
    }


if __name__ == "__main__":
    sys.exit(main())
