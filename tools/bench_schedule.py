"""Schedules over a fixed group: measured on CPU ranks, and simulated on modelled GPUs.

The two never stand in one table. `schedule_measured` and `schedule_simulated` say what each does and does not
show. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import sys

import schedule_measured as measured
from schedule_simulated import SETTINGS, simulated

from flexfloor.launch import run_ranks


def main() -> None:
    """Measure, simulate, print a table for each and, last, one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--ranks", type=int, default=4, help="CPU ranks of the measured part; 0 = leave it out"
    )
    parser.add_argument("--rounds", type=int, default=3, help="of the measured part")
    parser.add_argument("--settings", nargs="*", choices=SETTINGS, default=list(SETTINGS))
    options = parser.parse_args()
    told: dict[str, object] = {"bench": "schedule"}
    if options.ranks:
        [found, *_] = run_ranks(
            measured.measure, options.ranks, options.rounds, threads_per_rank=1, total_timeout_seconds=3600
        )
        measured.show(*found, options.ranks)
        told["measured"] = measured.compared(*found)
    if options.settings:
        told["simulated"] = simulated(tuple(options.settings))
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
