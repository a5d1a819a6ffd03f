"""What a machine with a GPU makes of FlexFloor, in one command: right numbers, speed, ranks that leave.

    python tools/gpu_check.py --json gpu.json          # one GPU, under five minutes, no network
    python tools/gpu_check.py --device cpu --small     # the same code on a machine without one

It needs Python 3.11 or 3.12, PyTorch, megatron-core and transformers, and no installation of FlexFloor. A
fault of the device ends the part that met it and none of the others. The last line is one JSON object; the
status is 0 when everything that ran was right.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

TOOLS = Path(__file__).parent
PARTS = ("machine", "references", "speed", "elastic")
LIMIT_SECONDS = 290
"""Of all parts together."""


def main() -> int:
    """Run the parts, tell what was found as it comes and, last, as one JSON line."""
    options = _options()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as folder:
        found = _run(options, Path(folder) / "found.jsonl", began + LIMIT_SECONDS)
    told = {
        "check": "gpu",
        "ok": all(each["ok"] for each in found),
        "seconds": round(time.monotonic() - began, 1),
        "results": found,
    }
    if options.json:
        options.json.write_text(json.dumps(told, indent=1) + "\n")
    say(json.dumps(told))
    return 0 if told["ok"] else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto")
    parser.add_argument("--small", action="store_true", help="a model of a few thousand parameters")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the results go as well")
    return parser.parse_args()


def _run(options: argparse.Namespace, file: Path, deadline: float) -> list[dict[str, Any]]:
    """Results of all parts; one that ended its process is a result that is not right."""
    left, found = list(options.parts), []
    while left:
        file.write_text("")
        ended = _start(left, options, file, deadline)
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        found += [line for line in lines if "name" in line]
        finished = [line["finished"] for line in lines if "finished" in line]
        left = [part for part in left if part not in finished]
        if left and ended:
            found.append({"part": left.pop(0), "name": "ended early", "ok": False, "why": ended})
            say(shown(found[-1]))
    return found


def _start(parts: list[str], options: argparse.Namespace, file: Path, deadline: float) -> str:
    """Run parts in a process; how it ended, when not as it should."""
    size = "small" if options.small else "full"
    words = [sys.executable, str(TOOLS / "gpu_parts.py"), options.device, size, str(file), *parts]
    hidden = {"CUDA_VISIBLE_DEVICES": ""} if options.device == "cpu" else {}
    path = os.pathsep.join(filter(None, [str(TOOLS.parent), os.environ.get("PYTHONPATH", "")]))
    environ = {**os.environ, "PYTHONPATH": path, **hidden}
    try:
        ended = subprocess.run(
            words,
            env=environ,
            stderr=subprocess.PIPE,
            text=True,
            timeout=max(1.0, deadline - time.monotonic()),
        )
    except subprocess.TimeoutExpired:
        return f"more than {LIMIT_SECONDS} s in all"
    sys.stderr.write(ended.stderr)
    lines = [line for line in ended.stderr.splitlines() if line.strip()]
    return f"status {ended.returncode}: {lines[-1] if lines else ''}" if ended.returncode else ""


def shown(result: dict[str, Any]) -> str:
    """A result as a line."""
    figures = {name: value for name, value in result.items() if name not in ("part", "name", "ok")}
    told = ", ".join(
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in figures.items()
    )
    return f"{'ok ' if result['ok'] else 'BAD'} {result['part']}: {result['name']}: {told}"


def say(line: str) -> None:
    """Tell a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
