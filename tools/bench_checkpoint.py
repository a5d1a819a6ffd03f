"""Time to save and to load a checkpoint, over plainly writing and reading files of the same sizes.

Two ranks hold a Mixtral-like model with expert parallelism, its weights and Adam's moments in float32. A
save is everything from the call to the finished checkpoint: plan, shards, checksums, manifest, renames, all
synced to the disk; a load is the check of every file and the state in place in model and optimizer. The plain
side has the same ranks write and sync, or read, as many files of the same sizes from and to memory that is
there already. All four take turns in one run; before a load or a read the files leave the page cache.

What it does not show: many nodes on one network file system, and the copies from and to a GPU. The disk of
the machine it runs on sets the level of all four figures, and its noise their spread.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from rich.console import Console
from rich.table import Table

from flexfloor.config import Config, compose
from flexfloor.launch import run_ranks

RANKS = 2
STEP = 1
MODEL = [
    "recipe=tiny-mixtral",
    f"launch.nproc={RANKS}",
    f"parallel.ep={RANKS}",
    "model.num_layers=4",
    "model.hidden_size=384",
    "model.num_experts=8",
    "data.train_size=4",
    "data.val_size=4",
    "data.train_batch_size=4",
    "actor.ppo_mini_batch_size=4",
]
ACTIONS = ("save", "write", "load", "read")


def main() -> None:
    """Measure, print the table and, last, one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ffn", type=int, default=2304, help="inner size of an expert; sets the size")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--folder", type=Path, default=None, help="where to write; a temporary folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="bench-checkpoint-") as folder:
        config = compose([*MODEL, f"model.moe_ffn_hidden_size={options.ffn}"])
        num_bytes, seconds = run_ranks(measure, RANKS, config, folder, options.rounds, threads_per_rank=1)[0]
    report(num_bytes, {name: statistics.median(of_action) for name, of_action in seconds.items()})


def report(num_bytes: int, medians: dict[str, float]) -> None:
    """Print the medians and what they say of a checkpoint."""
    table = Table("", "seconds", "GB/s", title=f"{num_bytes / 1e6:.0f} MB on {RANKS} ranks")
    for name, value in medians.items():
        table.add_row(name, f"{value:.2f}", f"{num_bytes / value / 1e9:.2f}")
    Console().print(table)
    figures = {
        "bench": "checkpoint",
        "save_over_write": round(medians["save"] / medians["write"], 2),
        "load_over_read": round(medians["load"] / medians["read"], 2),
    }
    sys.stdout.write(json.dumps(figures) + "\n")


def measure(config: Config, folder: str, rounds: int) -> tuple[int, dict[str, list[float]]]:
    """Bytes of a checkpoint, and seconds of each action in each round, of the slowest rank."""
    from flexfloor.train import checkpoint, checkpoint_folder

    parts = build(config)
    ours, plain = Path(folder) / "ours", Path(folder) / "plain"
    path = checkpoint.save_checkpoint(ours, STEP, **parts, extra={})
    sizes = checkpoint_folder.file_sizes(path)
    buffers = {name: noise(size) for name, size in sizes.items() if is_mine(name)}
    actions: dict[str, Callable[[], Any]] = {
        "save": lambda: checkpoint.save_checkpoint(ours, STEP, **parts, extra={}),
        "write": lambda: write(plain, buffers),
        "load": lambda: load(path, parts),
        "read": lambda: read(plain, buffers),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ACTIONS}
    for _ in range(rounds):
        for name in ACTIONS:
            forget_files(path, plain)
            seconds[name].append(timed(actions[name]))
    return sum(sizes.values()), seconds


def build(config: Config) -> dict[str, Any]:
    """Model, optimizer and schedule with a step behind them, Adam's moments full of noise."""
    from flexfloor.stages.train_step import build_train_step
    from flexfloor.worker import set_up

    worker = set_up(config)
    train_step = build_train_step(worker)
    worker.ddp.zero_grad_buffer()
    train_step.optimizer.step()
    for part in train_step.optimizer.chained_optimizers:
        for state in part.optimizer.state.values():
            state["exp_avg"].normal_()
            state["exp_avg_sq"].uniform_()
    return {
        "model": [worker.ddp],
        "optimizer": train_step.optimizer,
        "scheduler": train_step.scheduler,
    }


def load(path: Path, parts: dict[str, Any]) -> None:
    """What a resumed run does: check all files, and load."""
    from flexfloor.train import checkpoint

    checkpoint.require_intact(path)
    checkpoint.load_checkpoint(path, **parts)


def is_mine(name: str) -> bool:
    """Whether this rank writes the file of a checkpoint: its shards and states; rank 0 all that is common."""
    rank = dist.get_rank()
    base = Path(name).name
    return base.startswith((f"__{rank}_", f"rank_{rank:05d}")) or (
        rank == 0 and not base.startswith(("__", "rank_"))
    )


def noise(size: int) -> np.ndarray:
    """So many bytes that no file system can make smaller."""
    return np.random.default_rng(0).integers(0, 256, size, dtype=np.uint8)


def write(folder: Path, buffers: dict[str, np.ndarray]) -> None:
    """This rank's files, new and synced."""
    if dist.get_rank() == 0:
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "weights").mkdir(parents=True)
    dist.barrier()
    for name, buffer in buffers.items():
        with (folder / name).open("wb", buffering=0) as file:
            file.write(memoryview(buffer))
            os.fsync(file.fileno())


def read(folder: Path, buffers: dict[str, np.ndarray]) -> None:
    """This rank's files, whole."""
    for name, buffer in buffers.items():
        with (folder / name).open("rb", buffering=0) as file:
            file.readinto(memoryview(buffer))


def forget_files(*folders: Path) -> None:
    """Take the files out of the page cache, so that they are read from the disk."""
    dist.barrier()
    if dist.get_rank() == 0:
        for path in (path for folder in folders for path in folder.rglob("*") if path.is_file()):
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    dist.barrier()


def timed(action: Callable[[], Any]) -> float:
    """Seconds until all ranks are through."""
    dist.barrier()
    start = time.perf_counter()
    action()
    seconds = torch.tensor(time.perf_counter() - start)
    dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
    return seconds.item()


if __name__ == "__main__":
    main()
