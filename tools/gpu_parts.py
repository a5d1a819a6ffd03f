"""The process that runs parts of `gpu_check`: `gpu_parts.py DEVICE SIZE FILE PART...`.

It takes the one seat of a run of one rank, and appends each result to FILE as soon as there is one.
"""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from gpu_check import say, shown

Result = tuple[str, bool, dict[str, Any]]
"""(name, whether it is right, figures)."""


@contextmanager
def seat(folder: str, *, rank: int = 0, world_size: int = 1) -> Iterator[None]:
    """Be a rank in the block: device, patches, process group."""
    from flexfloor import device
    from megatron_patches import start_up

    torch.set_num_threads(device.default_threads(world_size))
    device.claim_device(rank)
    start_up()
    dist.init_process_group(
        device.backend(),
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=120),
    )
    try:
        yield
    finally:
        dist.destroy_process_group()


def synchronized_seconds() -> float:
    """The time, once the device has done all that it was asked for."""
    from flexfloor import device

    if not device.is_cpu_host():
        torch.cuda.synchronize()
    return time.perf_counter()


def machine(size: str) -> Iterator[Result]:
    """What there is."""
    from importlib import metadata

    from flexfloor import device

    names = ("torch", "megatron-core", "transformers", "numpy", "triton", "transformer-engine")
    versions = {}
    for name in names:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    yield (
        "device",
        True,
        {"device": device.describe(), "free_GiB": _free(device), "threads": torch.get_num_threads()},
    )
    yield "versions", True, {"python": sys.version.split()[0], **versions}


def _free(device: Any) -> float | None:
    held = device.rank_memory_bytes()
    return round(held / 2**30, 1) if held else None


def run_parts(parts: list[str], size: str, file: Path) -> None:
    """Run the parts, one after the other."""
    known: dict[str, Callable[[str], Iterator[Result]]] = {"machine": machine}
    for part in parts:
        run = known.get(part) or importlib.import_module(f"gpu_{part}").run
        began = synchronized_seconds()
        for name, is_right, figures in run(size):
            seconds = round(synchronized_seconds() - began, 1)
            _append(file, {"part": part, "name": name, "ok": is_right, **figures, "seconds": seconds})
            began = synchronized_seconds()
        _append(file, {"finished": part})


def _append(file: Path, line: dict[str, Any]) -> None:
    with file.open("a") as lines:
        lines.write(json.dumps(line) + "\n")
    if "name" in line:
        say(shown(line))


def main() -> None:
    """Be one rank, and run what was asked for."""
    wanted, size, file, *parts = sys.argv[1:]
    from flexfloor import device, parallel

    if wanted == "cuda" and device.is_cpu_host():
        sys.exit("there is no CUDA device here; --device cpu --small runs the same code without one")
    with tempfile.TemporaryDirectory(prefix="gpu-check-seat-") as folder, seat(folder):
        parallel.initialize(ep_size=1, seed=0, timeout_seconds=120)
        run_parts(parts, size, Path(file))


if __name__ == "__main__":
    main()
