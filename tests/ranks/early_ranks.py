"""Whole steps of the recipe with given lengths and releases: what `test_early_update` runs on each rank."""

import dataclasses
import random
import time
from pathlib import Path

import numpy as np

SMALL = [
    "recipe=tiny-mixtral",
    "elastic=on",
    "elastic.interval=2",
    "model.num_layers=2",
    "model.hidden_size=32",
    "model.moe_ffn_hidden_size=24",
    "model.num_experts=12",
    "model.dtype=float64",
    "model.init_std=0.3",
    "data.train_size=24",
    "data.val_size=0",
    "data.train_batch_size=4",
    "data.max_response_length=40",
    "actor.ppo_mini_batch_size=4",
    "actor.micro_batch_tokens=400",
    "overlap.micro_batch_tokens=120",
    "rollout.n=3",
    "rollout.ignore_eos=true",
    "sft.steps=0",
    "trainer.total_training_steps=3",
    "trainer.test_freq=-1",
    "trainer.save_freq=-1",
    "trainer.val_before_train=false",
    "trainer.logger=[jsonl]",
    f"reward.custom_reward_function.path={Path(__file__).with_name('any_score.py')}",
]
LONG = 40


@dataclasses.dataclass(frozen=True)
class Case:
    """One run of the recipe."""

    words: tuple[str, ...] = ()
    """Overrides."""
    releases: tuple[int, ...] = ()
    """Size of the group after each decision; the last one stays."""
    pause: float = 0.01
    """Seconds that a pass takes besides, so that released ranks have time to train."""
    jitter: int | None = None
    """Seed of releases and of delays of everything; None = as `releases` say, and no delays."""


@dataclasses.dataclass(frozen=True)
class Found:
    """What a run left on one rank."""

    weights: dict
    metrics: dict
    """By step."""
    trained: list
    """(uid, response index) of each sample that this rank took gradients of."""
    held_bytes: list
    """In tensors, after each update."""
    guests_before: list
    """Experts that this rank holds as guests, before each update."""
    guests_after: list
    leases: list
    """(step, ranks) of this rank's leases."""


def lengths(prompts, n, step):
    """One prompt in two is short, so that its group is complete while others generate."""
    rng = np.random.default_rng(step)
    return {
        (prompt.uid, index): int(rng.integers(2, 9)) if place % 2 == 0 else int(rng.integers(20, LONG + 1))
        for place, prompt in enumerate(prompts)
        for index in range(n)
    }


def run_cases(cases, folder):
    """[Found] of this rank, one for each case."""
    from flexfloor import parallel

    found = []
    for number, case in enumerate(cases):
        found.append(run_case(case, Path(folder) / str(number)))
        parallel.destroy()
    return found


def run_case(case, folder):
    """One run; all ranks call it."""
    import torch.distributed as dist

    from flexfloor import heartbeat
    from flexfloor.config.compose import compose
    from flexfloor.recipes import grpo
    from flexfloor.rollout.active_group import ActiveGroup
    from flexfloor.rollout.generation import Generation
    from flexfloor.schedule.shrink import Step
    from flexfloor.train.step import TrainStep
    from flexfloor.worker import set_up

    world = dist.get_world_size()
    words = [*SMALL, f"launch.nproc={world}", f"trainer.default_local_dir={folder}"]
    config = compose([*words, f"parallel.ep={world}", *case.words])
    kept, trained, held_bytes, guests_before, guests_after = {}, [], [], [], []
    rng = random.Random(case.jitter * 100 + dist.get_rank()) if case.jitter is not None else None

    def delay(most):
        if rng:
            time.sleep(rng.random() * most)

    def set_up_with_lengths(config):
        kept["worker"] = set_up(config)
        kept["worker"].planner.forced_lengths = lengths
        return kept["worker"]

    def decide(self, standings):
        decision = self.__dict__["decision"] = self.__dict__.get("decision", -1) + 1
        if case.jitter is not None:
            chance = random.Random(f"{case.jitter}/{heartbeat.now().step}/{decision}")
            return Step(size=chance.randint(1, self.size))
        wanted = case.releases[min(decision, len(case.releases) - 1)] if case.releases else self.size
        return Step(size=min(wanted, self.size))

    def slow_pass(self, *args):
        time.sleep(case.pause)
        delay(0.02)
        return originals["_pass"](self, *args)

    def measured_update(self, *args):
        guests_before.append(_num_guests())
        metrics = originals["update"](self, *args)
        guests_after.append(_num_guests())
        held_bytes.append(_held_bytes())
        return metrics

    def counting_backward(self, members, sums):
        trained.extend((sample.uid, sample.response_index) for sample in members)
        delay(0.03)
        return originals["_backward"](self, members, sums)

    changed = {
        "decide": (ActiveGroup, decide),
        "_pass": (Generation, slow_pass),
        "_backward": (TrainStep, counting_backward),
        "update": (TrainStep, measured_update),
    }
    originals = {name: getattr(owner, name) for name, (owner, _) in changed.items()}
    grpo.set_up = set_up_with_lengths
    for name, (owner, function) in changed.items():
        setattr(owner, name, function)
    try:
        grpo.train(config)
    finally:
        grpo.set_up = set_up
        for name, (owner, _) in changed.items():
            setattr(owner, name, originals[name])
    return Found(
        **_left(kept["worker"], folder),
        trained=trained,
        held_bytes=held_bytes,
        guests_before=guests_before,
        guests_after=guests_after,
    )


def _num_guests():
    import gc

    from flexfloor.overlap.guests import Guest

    return sum(type(each) is Guest for each in gc.get_objects())


def _held_bytes():
    import gc

    import torch

    gc.collect()
    held = {each.untyped_storage() for each in gc.get_objects() if type(each) is torch.Tensor}
    return sum({each.data_ptr(): each.nbytes() for each in held}.values())


def _left(worker, folder):
    import torch.distributed as dist

    from flexfloor.journal import LEDGER_FILE
    from flexfloor.ledger.store import read_ledger
    from flexfloor.track.jsonl import read_steps

    dist.barrier()
    records = [each for step in read_ledger(folder / LEDGER_FILE) for each in step]
    mine = [each for each in records if each.rank == dist.get_rank()]
    return dict(
        weights={
            name: weight.detach().clone().numpy()
            for name, weight in (*worker.model.named_parameters(), *worker.model.named_buffers())
            if weight.requires_grad or name.endswith("expert_bias")
        },
        metrics={line["step"]: line for line in read_steps(folder / "metrics.jsonl")},
        leases=[(record.step, lease.ranks) for record in mine for lease in record.leases],
    )
