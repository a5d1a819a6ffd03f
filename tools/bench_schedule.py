"""What schedules give over a fixed group, simulated on modelled GPUs (`schedule_simulated`).

No figure here was measured on a GPU. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import sys

from schedule_simulated import SETTINGS, simulated


def main() -> None:
    """Simulate, print a table for each setting and, last, one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    options = parser.parse_args()
    told = {"bench": "schedule", "simulated": simulated(tuple(options.settings))}
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
