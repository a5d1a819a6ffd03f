"""Steps whose update begins on released ranks, over steps whose update waits: measured, and simulated.

The two never stand in one table. `overlap_measured` and `overlap_simulated` say what each does and does not
show. The headline is a step of the full system over one of the fixed group; the last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import sys

import overlap_measured as measured
from overlap_simulated import SETTINGS, simulated

from flexfloor.launch import run_ranks


def main() -> None:
    """Measure, simulate, print a table for each and, last, one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="*", default=[2, 4], help="CPU ranks of the measured part")
    parser.add_argument("--rounds", type=int, default=5, help="of the measured part")
    parser.add_argument("--settings", nargs="*", choices=SETTINGS, default=list(SETTINGS))
    options = parser.parse_args()
    told: dict[str, object] = {"bench": "overlap"}
    for ranks in options.ranks:
        [found, *_] = run_ranks(
            measured.measure, ranks, options.rounds, threads_per_rank=1, total_timeout_seconds=3600
        )
        measured.show(found, ranks)
        told[f"ranks{ranks}"] = figures = measured.compared(found, ranks)
        headline = f"{ranks} ranks: a step takes {figures['step_time_over_static']:.2f} of the fixed group's"
        sys.stdout.write(f"{headline}, {figures['off_over_static']:.2f} without the early update\n")
    if options.settings:
        told["simulated"] = simulated(tuple(options.settings))
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
