"""Time to take a Hugging Face folder's weights into a built model, over plainly reading the same files.

One rank holds a Mixtral-like model of about a gigabyte in float32. Taking is everything from the call to the
filled model: headers, the check that every tensor has its place, reading, conversion. Plain reading is of the
same files, whole, into memory that is there already. They take turns in one run, with the files in the page
cache, for files in the model's type and for files in bfloat16, which are converted on the way.

What it does not show: a disk or network file system that is slower than memory, where the two are nearer to
each other, and the copies to a GPU.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from flexfloor.launch import run_ranks
from flexfloor.models.config import ModelConfig

VOCAB_SIZE = 32_000
SHARD_BYTES = 250 * 10**6


def main() -> None:
    """Measure, print the table and, last, one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ffn", type=int, default=4608, help="inner width of an expert; sets the size")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--folder", type=Path, default=None, help="where to write; a temporary folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="bench-convert-") as folder:
        [found] = run_ranks(measure, 1, options.ffn, folder, options.rounds, threads_per_rank=1)
    report(found)


def report(found: dict[str, tuple[int, dict[str, list[float]]]]) -> None:
    """Print the medians and what they say of taking weights."""
    table = Table("files", "GB", "taken, GB/s", "read, GB/s", "ratio", title="one rank, one thread")
    ratios = {}
    for dtype, (num_bytes, seconds) in found.items():
        gigabytes = num_bytes / 1e9
        taken, read = (gigabytes / statistics.median(seconds[side]) for side in ("take", "read"))
        ratios[dtype] = taken / read
        row = [f"{value:.2f}" for value in (gigabytes, taken, read, ratios[dtype])]
        table.add_row(dtype, *row)
    Console().print(table)
    figures = {
        "bench": "convert",
        "ratio_over_read": round(ratios["float32"], 2),
        "ratio_over_read_converted": round(ratios["bfloat16"], 2),
    }
    sys.stdout.write(json.dumps(figures) + "\n")


def measure(ffn: int, folder: str, rounds: int) -> dict[str, tuple[int, dict[str, list[float]]]]:
    """By the files' type: their bytes, and seconds of both sides in each round."""
    from flexfloor import parallel
    from flexfloor.models.build import build_model
    from flexfloor.models.registry import weight_map_of
    from flexfloor.models.weights.give import export_weights
    from flexfloor.models.weights.take import import_weights

    parallel.initialize(ep_size=1, seed=0, timeout_seconds=600)
    model = ModelConfig(num_layers=4, hidden_size=512, moe_ffn_hidden_size=ffn)
    sizes = {"vocab_size": VOCAB_SIZE, "max_sequence_length": 64}
    gpt, weight_map = build_model(model, **sizes, groups=parallel.groups()), weight_map_of(model)
    found = {}
    for dtype in ("float32", "bfloat16"):
        out = Path(folder) / dtype
        export_weights(
            gpt,
            weight_map,
            out,
            vocab_size=VOCAB_SIZE,
            dtype=getattr(torch, dtype),
            max_shard_bytes=SHARD_BYTES,
        )
        found[dtype] = compare(out, lambda out=out: import_weights(gpt, weight_map, out), rounds)
    return found


def compare(folder: Path, take: Callable[[], None], rounds: int) -> tuple[int, dict[str, list[float]]]:
    """Bytes of the folder's weights, and seconds of taking and of reading them, in turns."""
    files = sorted(folder.glob("*.safetensors"))
    # Torch's memory, which is aligned as the model's is: into NumPy's the system copies at half the speed.
    buffers = {file: torch.ones(file.stat().st_size, dtype=torch.uint8).numpy() for file in files}
    sides = {"take": take, "read": lambda: read(buffers)}
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        for name, side in sides.items():
            start = time.perf_counter()
            side()
            if number:  # the first round brings the files into the page cache
                seconds[name].append(time.perf_counter() - start)
    return sum(buffer.nbytes for buffer in buffers.values()), seconds


def read(buffers: dict[Path, np.ndarray]) -> None:
    """All files, whole."""
    for path, buffer in buffers.items():
        with path.open("rb", buffering=0) as file:
            left = memoryview(buffer)
            while left:
                left = left[file.readinto(left) :]


if __name__ == "__main__":
    main()
