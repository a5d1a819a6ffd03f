"""A run of the demo recipe made small enough for tests."""

import json
import subprocess
import sys
from pathlib import Path

from flexfloor.cli import main

SMALL = [
    "recipe=tiny-mixtral",
    "launch.nproc=2",
    "parallel.ep=2",
    "model.num_layers=2",
    "model.hidden_size=32",
    "model.moe_ffn_hidden_size=32",
    "model.num_experts=4",
    "data.train_size=24",
    "data.val_size=4",
    "data.train_batch_size=3",
    "data.max_response_length=12",
    "actor.ppo_mini_batch_size=3",
    "actor.micro_batch_tokens=400",
    "rollout.n=4",
    "sft.steps=2",
    "sft.batch_size=5",
    "trainer.total_training_steps=2",
    "trainer.test_freq=2",
    "trainer.save_freq=-1",
    "trainer.logger=[console]",
]


def run(folder: Path, *overrides: str, command: str = "train") -> int:
    """Exit status of a small run in `folder`; later overrides win."""
    return main([command, *SMALL, f"trainer.default_local_dir={folder}", *overrides])


def metrics_of(folder: Path) -> dict[int, dict[str, float]]:
    """Metrics of the run in `folder` by step."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {line["step"]: line for line in lines}


def learned(metrics: dict[str, float]) -> dict[str, float]:
    """What a step's metrics say about what was generated and learned, without times and memory."""
    parts = ("critic/", "actor/", "response_length/", "prompt_length/", "val-core/", "sft/")
    return {name: value for name, value in metrics.items() if name.startswith(parts)}


def command(words: list[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    """`flexfloor` in a process of its own: what its ranks print is captured, and nothing is warmed up."""
    return subprocess.run(
        [sys.executable, "-m", "flexfloor", *words], cwd=cwd, capture_output=True, text=True, timeout=250
    )
