"""A small float64 run in a process whose PYTHONPATH decides the Megatron-Core: prints it as one JSON line.

By hand: `PYTHONPATH=.venv/mcore-next:tests/recipes .venv/bin/python tests/versions/run_under.py FOLDER`.
"""

import json
import sys
from pathlib import Path

from small_run import learned, metrics_of, run

from megatron_patches import quiet
from megatron_patches.patch import upstream_version


def main(folder: Path, overrides: list[str]) -> None:
    """Run in `folder` and print, on the last line, what was learned at each step, and by which version."""
    status = run(folder, "model.dtype=float64", "trainer.save_freq=2", *overrides)
    assert status == 0, status
    quiet.silence_expected()
    steps = {step: learned(metrics) for step, metrics in metrics_of(folder).items()}
    sys.stdout.write(json.dumps({"version": upstream_version("megatron.core"), "steps": steps}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
