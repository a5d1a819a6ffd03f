"""The measured part of `bench_overlap`: whole steps on CPU ranks, with and without an early update.

64 responses to 16 prompts, log-normal in length, 65 % of the variance the prompt's, so that earlier steps
tell something of later ones; training takes about as long as generation. In each round every variant takes a
step on the same lengths, in one run, after two rounds from which history and costs are learned. What it does
not show: more ranks than cores, where what one rank computes the others wait for.
"""

from __future__ import annotations

import dataclasses
import statistics
import tempfile
from pathlib import Path

import numpy as np
import torch.distributed as dist
from rich.console import Console
from rich.table import Table

from flexfloor.ledger.types import ROLLOUT, State, StepRecord

NUM_PROMPTS, SIBLINGS, LONGEST, MEDIAN, DEVIATION, PROMPT_SHARE = 16, 4, 320, 40, 0.988, 0.648
LEARNING_ROUNDS = 2
WORDS = [
    "recipe=tiny-mixtral",
    "schedule=flexfloor",
    "elastic=on",
    "overlap=on",
    "elastic.interval=4",
    "model.num_layers=4",
    "model.hidden_size=256",
    "model.moe_ffn_hidden_size=512",
    "data.train_size=16",
    "data.val_size=0",
    f"data.train_batch_size={NUM_PROMPTS}",
    f"data.max_response_length={LONGEST}",
    f"actor.ppo_mini_batch_size={NUM_PROMPTS}",
    f"rollout.n={SIBLINGS}",
    "rollout.ignore_eos=true",
    "sft.steps=0",
    "trainer.test_freq=-1",
    "trainer.save_freq=-1",
    "trainer.val_before_train=false",
    "trainer.logger=[jsonl]",
]
STATIC, OFF, ON = "static: fixed group, no early update", "elastic, no early update", "elastic, early update"
VARIANTS = (STATIC, OFF, ON)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of all ranks."""

    seconds: float
    generating_s: float
    """From the start of the rollout to the end of the last rank's generation."""
    occupied_s: float
    """Rank-seconds."""
    training_s: float
    """Rank-seconds, early or not."""
    hidden_s: float
    """Rank-seconds of training before the last rank had generated."""

    @classmethod
    def of(cls, records: list[StepRecord]) -> Step:
        """Of the records of all ranks."""
        from flexfloor.ledger.metrics import occupation, overlap_metrics

        held = occupation(records)
        training = [i.seconds for r in records for i in r.intervals if i.state is State.TRAINING]
        return cls(
            seconds=records[0].seconds,
            generating_s=held.wall_s,
            occupied_s=held.occupied_s,
            training_s=sum(training),
            hidden_s=overlap_metrics(records).get("overlap/hidden_seconds", 0.0),
        )

    def hideable_s(self, ranks: int) -> float:
        """Rank-seconds of training that would fit beside this step's generation."""
        return min(self.training_s, ranks * self.generating_s - self.occupied_s)

    def bound_s(self, ranks: int) -> float:
        """No step with this generation and training can be shorter."""
        return max(self.generating_s, (self.occupied_s + self.training_s) / ranks)


def measure(rounds: int) -> dict[str, list[Step]]:
    """Steps by variant, on rank 0; every rank calls it."""
    from flexfloor.config import compose
    from flexfloor.recipes import grpo
    from flexfloor.stop import StopRequest
    from flexfloor.worker import set_up

    world = dist.get_world_size()
    folder: list = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(folder, src=0)
    words = [f"launch.nproc={world}", f"parallel.ep={world}", f"trainer.default_local_dir={folder[0]}"]
    worker = set_up(compose([*WORDS, *words]))
    run = grpo.open_run(worker, StopRequest())
    order = []
    for turn in range(LEARNING_ROUNDS + rounds):
        for variant in VARIANTS:
            order.append(variant if turn >= LEARNING_ROUNDS else None)
            one_step(run, variant, turn, step=len(order))
    dist.barrier()
    return _steps(Path(folder[0]), order)


def one_step(run, variant: str, turn: int, *, step: int) -> None:
    """The recipe's step under a variant; every rank calls it."""
    from flexfloor.recipes import grpo
    from flexfloor.stages.advantages import form_advantages
    from flexfloor.stages.rollout_metrics import rollout_metrics
    from flexfloor.stages.samples import make_samples

    worker, config = run.worker, run.worker.config
    policy = "never" if variant == STATIC else "guided"
    worker.engine.elastic = config.elastic = dataclasses.replace(config.elastic, policy=policy)
    config.schedule = dataclasses.replace(
        config.schedule, policy="static" if variant == STATIC else "flexfloor"
    )
    worker.planner.forced_lengths = lambda prompts, n, _: lengths(prompts, turn)
    prompts = worker.prompts["train"][:NUM_PROMPTS]
    with run.journal.step(step) as metrics:
        early = run.early.begin(prompts, run.journal, step) if variant == ON else None
        rollout = grpo.generate(run, prompts, step, early)
        metrics |= rollout_metrics(rollout)
        worker.planner.learn([each.response for each in rollout.responses], rollout.stats, step)
        parts, _ = form_advantages([make_samples(rollout.responses, config.algorithm)], config.algorithm)
        grpo.update(run, parts, early.part(rollout.early) if early else None)


def lengths(prompts, turn: int) -> dict[tuple[str, int], int]:
    """Of each response; prompts stay what they are from one round to the next."""
    of_prompt = np.random.default_rng(1).normal(0, DEVIATION * PROMPT_SHARE**0.5, (NUM_PROMPTS, 1))
    each = np.random.default_rng(100 + turn).normal(
        0, DEVIATION * (1 - PROMPT_SHARE) ** 0.5, (NUM_PROMPTS, SIBLINGS)
    )
    found = np.clip(np.round(MEDIAN * np.exp(of_prompt + each)), 2, LONGEST).astype(int)
    return {
        (prompt.uid, index): int(tokens)
        for prompt, row in zip(prompts, found.tolist(), strict=True)
        for index, tokens in enumerate(row)
    }


def _steps(folder: Path, order: list[str | None]) -> dict[str, list[Step]]:
    from flexfloor.ledger.pictures import LEDGER_FILE
    from flexfloor.ledger.store import read_ledger

    found: dict[str, list[Step]] = {variant: [] for variant in VARIANTS}
    for records in read_ledger(folder / LEDGER_FILE):
        number = records[0].step
        variant = order[number - 1] if number else None
        if variant:
            assert any(i.stage == ROLLOUT for i in records[0].intervals), records
            found[variant].append(Step.of(list(records)))
    return found


def compared(found: dict[str, list[Step]], ranks: int) -> dict[str, float]:
    """Medians over the rounds of ratios within a round."""

    def median(figure) -> float:
        rounds = zip(*(found[variant] for variant in VARIANTS), strict=True)
        return round(statistics.median(figure(*each) for each in rounds), 3)

    return {
        "step_time_over_off": median(lambda static, off, on: on.seconds / off.seconds),
        "hidden_share": median(lambda static, off, on: on.hidden_s / max(1e-9, on.hideable_s(ranks))),
        "step_time_over_static": median(lambda static, off, on: on.seconds / static.seconds),
        "off_over_static": median(lambda static, off, on: off.seconds / static.seconds),
        "step_time_over_bound": median(lambda static, off, on: on.seconds / off.bound_s(ranks)),
        "training_over_generation": median(lambda static, off, on: off.training_s / ranks / off.generating_s),
    }


def show(found: dict[str, list[Step]], ranks: int) -> None:
    """A table of medians."""
    table = Table(
        "variant",
        "step s",
        "generation s",
        "occupied rank-s",
        "training rank-s",
        "of it hidden",
        title=f"measured, {ranks} CPU ranks",
    )
    for variant, steps in found.items():
        cells = [
            statistics.median(getattr(step, name) for step in steps)
            for name in ("seconds", "generating_s", "occupied_s", "training_s", "hidden_s")
        ]
        table.add_row(variant, *(f"{each:.2f}" for each in cells))
    Console().print(table)
