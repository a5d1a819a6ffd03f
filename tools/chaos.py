"""Kill a random rank of a small GRPO run at random moments, resume each time, and compare the end to the bit.

An undisturbed run is made first. Then the same run is started again and again in another folder, and one of
its ranks is killed by SIGKILL: while it starts, in a step, or while a checkpoint is written, until `--kills`
have hit. What the last start ends with must equal the undisturbed run: weights, optimizer and random states
to the bit, and what the steps generated and learned. (A step killed between its checkpoint and its metrics is
not trained again and has none.) The kills follow `--seed`; how far the run has come by then is up to the
machine.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from flexfloor.config import Config, compose
from flexfloor.errors import RankError
from flexfloor.launch import run_ranks
from flexfloor.track.metrics import read_metrics
from flexfloor.train.checkpoint_folder import checkpoint_name, require_whole

RANKS = 2
RUN = [
    "recipe=tiny-mixtral",
    f"launch.nproc={RANKS}",
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
    "sft.steps=1",
    "sft.batch_size=4",
    "trainer.test_freq=5",
    "trainer.save_freq=1",
    "trainer.max_ckpt_to_keep=2",
    "trainer.logger=[jsonl]",
]
SAVE_SECONDS = 0.4
"""How long a save takes at most on a quiet machine."""
MOMENTS = ("start-up", "step", "step", "save", "save")
LEARNED = ("critic/", "actor/", "response_length/", "val-core/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """One planned kill."""

    rank: int
    moment: str
    """One of `MOMENTS`: what the run has to be in before the clock starts."""
    delay_seconds: float
    """From then to the kill."""


def main() -> int:
    """Make both runs and compare them; 0 when they are equal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="chaos-") as root:
        whole, chaos = Path(root) / "whole", Path(root) / "chaos"
        num_steps = options.kills + 2
        start = time.monotonic()
        run_ranks(train_marked, RANKS, configured(whole, num_steps), str(whole), threads_per_rank=1)
        say(f"undisturbed: {num_steps} steps in {time.monotonic() - start:.0f} s")
        step_seconds = (time.monotonic() - start) / num_steps
        disturb(chaos, num_steps, options.kills, random.Random(options.seed), step_seconds)
        wrong = differences(whole, chaos)
    for line in wrong:
        say(f"differs: {line}")
    say(json.dumps({"chaos": options.kills, "equal": not wrong}))
    return 1 if wrong else 0


def configured(folder: Path, num_steps: int) -> Config:
    """The run in `folder`."""
    return compose([*RUN, f"trainer.default_local_dir={folder}", f"trainer.total_training_steps={num_steps}"])


def disturb(folder: Path, num_steps: int, kills: int, rng: random.Random, step_seconds: float) -> None:
    """Start the run until `kills` have hit, and once more to its end."""
    config = configured(folder, num_steps)
    hit = 0
    while hit < kills:
        # A run that is nearly through is killed while it starts, so that it does not end before its time.
        moment = rng.choice(MOMENTS) if newest_step(folder) < num_steps - 2 else "start-up"
        delay = rng.uniform(0, step_seconds if moment != "save" else SAVE_SECONDS)
        kill = Kill(rank=rng.randrange(RANKS), moment=moment, delay_seconds=delay)
        told = start_and_kill(config, folder, kill)
        hit += told is not None
        say(f"kill {hit} of {kills}: {told}" if told else "the run ended first")
    run_ranks(train_marked, RANKS, config, str(folder), threads_per_rank=1)


def start_and_kill(config: Config, folder: Path, kill: Kill) -> str | None:
    """Where `kill` hit the run; None when the run ended before."""
    for mark in folder.glob("mark-*"):
        mark.unlink()
    told: list[str] = []
    over = threading.Event()
    killer = threading.Thread(target=carry_out, args=(kill, folder, over, told))
    killer.start()
    try:
        run_ranks(train_marked, RANKS, config, str(folder), threads_per_rank=1, total_timeout_seconds=300)
    except RankError as error:
        assert f"rank {kill.rank} of {RANKS} was killed by SIGKILL" in str(error), error
        return told[0]
    finally:
        over.set()
        killer.join()
    assert not told, f"the run ended as if nothing had happened: {told}"
    return None


def carry_out(kill: Kill, folder: Path, over: threading.Event, told: list[str]) -> None:
    """Wait for the moment of `kill`, then kill; `told` says where the rank stood."""
    mark = folder / f"mark-{kill.rank}"
    while not has_come(kill.moment, mark):
        if over.wait(0.002):
            return
    if over.wait(kill.delay_seconds):
        return
    pid, place = mark.read_text().split(" ", 1)
    told.append(f"rank {kill.rank}, {kill.delay_seconds:.2f} s after {kill.moment} began, in {place}")
    try:
        os.kill(int(pid), signal.SIGKILL)
    except ProcessLookupError:
        told.clear()


def has_come(moment: str, mark: Path) -> bool:
    """Whether the run is where the clock of a kill starts."""
    place = mark.read_text() if mark.exists() else ""
    return {"start-up": "start-up", "step": "step", "save": "stage checkpoint"}[moment] in place


def train_marked(config: Config, folder: str) -> None:
    """`recipes.grpo` on this rank, which keeps a note of where it stands in a file of its own."""
    from torch.distributed import get_rank

    from flexfloor.journal import Journal
    from flexfloor.recipes.grpo import train

    Path(folder).mkdir(parents=True, exist_ok=True)
    mark = Path(folder) / f"mark-{get_rank()}"
    place = {"step": "the start-up", "stage": ""}

    def note(key: str, value: str) -> None:
        place[key] = value
        beside = mark.with_suffix(".new")
        beside.write_text(f"{os.getpid()} {place['step']}{place['stage']}")
        os.replace(beside, mark)

    step, stage = Journal.step, Journal.stage

    def marked_step(journal: Journal, number: int):
        note("step", f"step {number}")
        return step(journal, number)

    def marked_stage(journal: Journal, name: str):
        note("stage", f", last in stage {name}")
        return stage(journal, name)

    Journal.step, Journal.stage = marked_step, marked_stage  # type: ignore[method-assign]
    note("step", "the start-up")
    train(config)


def newest_step(folder: Path) -> int:
    """Step of the newest finished checkpoint, -1 without one."""
    names = [path.name for path in folder.glob("checkpoints/step_*") if path.suffix == ""]
    return max((int(name.removeprefix("step_")) for name in names), default=-1)


def differences(whole: Path, chaos: Path) -> list[str]:
    """What of the last checkpoint, and of the metrics of all steps, is not the same in both runs."""
    path = Path("checkpoints") / checkpoint_name(newest_step(whole))
    sums, others = (require_whole(folder / path)["crc32"] for folder in (whole, chaos))
    # plain.json names the run, and the shards' index is not written in one order.
    kept = [name for name in sums if name.endswith(".distcp") or name.startswith("rank_")]
    assert any(name.endswith(".distcp") for name in kept), sums
    wrong = [name for name in kept if sums[name] != others.get(name)]
    ours, theirs = (learned(folder) for folder in (whole, chaos))
    return wrong + [
        f"{name} of step {step}" for step, name in theirs if theirs[step, name] != ours[step, name]
    ]


def learned(folder: Path) -> dict[tuple[int, str], float]:
    """What each step generated and learned, by step and metric."""
    return {
        (step, name): value
        for step, metrics in read_metrics(folder / "metrics.jsonl").items()
        for name, value in metrics.items()
        if name.startswith(LEARNED)
    }


def say(line: str) -> None:
    """One line, at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
