"""What each section refuses, and that every complaint gives the full name of its field."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from flexfloor.checks import require_range, shown
from flexfloor.config import (
    Config,
    GenerateConfig,
    LaunchConfig,
    MemoryConfig,
    ParallelConfig,
    SftConfig,
    TokenizerConfig,
    TrainerConfig,
    compose,
)
from flexfloor.errors import ConfigError
from flexfloor.train.config import OptimConfig


@pytest.mark.parametrize(
    ("make", "start"),
    [
        (lambda: LaunchConfig(nproc=0), "launch.nproc = 0: must be >= 1"),
        (lambda: LaunchConfig(timeout_seconds=0.0), "launch.timeout_seconds = 0.0: must be > 0"),
        (lambda: LaunchConfig(hang_seconds=-1.0), "launch.hang_seconds = -1.0: must be >= 0"),
        (lambda: LaunchConfig(threads_per_rank=0), "launch.threads_per_rank = 0: must be >= 1"),
        (lambda: MemoryConfig(budget_bytes=0), "memory.budget_bytes = 0: must be a positive number of bytes"),
        (lambda: ParallelConfig(ep=0), "parallel.ep = 0: must be >= 1"),
        (lambda: ParallelConfig(tp=2), "parallel.tp = 2: must be a divisor of parallel.ep = 1, so that"),
        (
            lambda: ParallelConfig(pp=2),
            "parallel.pp = 2: must be 1 (pipeline parallelism is not supported: at each token",
        ),
        (lambda: TokenizerConfig(path=""), "tokenizer.path = '': must be builtin:char, a folder"),
        (lambda: SftConfig(steps=-1), "sft.steps = -1: must be >= 0"),
        (lambda: SftConfig(batch_size=0), "sft.batch_size = 0: must be >= 1"),
        (lambda: SftConfig(optim=OptimConfig(lr=-1.0)), "sft.optim.lr = -1.0: must be"),
        (lambda: GenerateConfig(split="test"), "generate.split = 'test': must be one of train, val"),
        (lambda: GenerateConfig(output=""), "generate.output = '': must be a file"),
        (lambda: GenerateConfig(max_prompts=0), "generate.max_prompts = 0: must be >= 1"),
        (
            lambda: TrainerConfig(logger=["tensorboard"]),
            "trainer.logger = 'tensorboard': must be one of console",
        ),
        (lambda: TrainerConfig(total_training_steps=-1), "trainer.total_training_steps = -1: must be >= 0"),
        (lambda: TrainerConfig(save_freq=0), "trainer.save_freq = 0: must be 1 or more, or -1 for never"),
        (lambda: TrainerConfig(test_freq=-2), "trainer.test_freq = -2: must be 1 or more, or -1 for never"),
        (lambda: TrainerConfig(max_ckpt_to_keep=0), "trainer.max_ckpt_to_keep = 0: must be >= 1"),
        (lambda: TrainerConfig(seed=-1), "trainer.seed = -1: must be >= 0"),
        (lambda: TrainerConfig(experiment_name=" "), "trainer.experiment_name = ' ': must be a name"),
        (lambda: TrainerConfig(default_local_dir=""), "trainer.default_local_dir = '': must be a folder"),
        (lambda: TrainerConfig(resume_mode="always"), "trainer.resume_mode = 'always': must be one of auto"),
        (lambda: TrainerConfig(resume_mode="path"), "trainer.resume_from_path = null: must be a checkpoint"),
        (lambda: TrainerConfig(resume_from_path="x"), "trainer.resume_from_path = 'x': must be a checkpoint"),
    ],
)
def test_a_section_refuses_what_is_out_of_range(make: Any, start: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make()
    assert str(caught.value).startswith(start)


def test_the_edges_of_the_ranges_are_taken() -> None:
    LaunchConfig(nproc=1, threads_per_rank=1)
    SftConfig(steps=0, batch_size=1)
    TrainerConfig(total_training_steps=0, save_freq=1, test_freq=-1, logger=[], seed=0)
    TrainerConfig(resume_mode="path", resume_from_path="x")
    GenerateConfig(max_prompts=1, split="train")


def _numeric_fields(section: Any, prefix: str = "") -> list[str]:
    found: list[str] = []
    for field in dataclasses.fields(section):
        value, name = getattr(section, field.name), f"{prefix}{field.name}"
        if dataclasses.is_dataclass(value):
            found += _numeric_fields(value, f"{name}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found.append(name)
    return found


MAY_BE_NEGATIVE = {"data.task_seed", "actor.entropy_coeff"}


@pytest.mark.parametrize("name", [name for name in _numeric_fields(Config()) if name not in MAY_BE_NEGATIVE])
def test_a_number_out_of_range_is_told_by_its_full_name(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        compose(["data.tasks=[{name: spell_backward}]", f"{name}=-7"])
    assert str(caught.value).startswith(name), str(caught.value)


@pytest.mark.parametrize(
    ("bounds", "inside", "outside"),
    [
        ({"low": 1, "high": 3}, [1, 2, 3], [0.999, 3.001]),
        ({"above": 0, "below": 1}, [0.001, 0.999], [0, 1, -1, 2]),
        ({}, [-1e30, 0, 1e30], []),
    ],
)
def test_a_range_holds_its_closed_ends_and_not_its_open_ones(
    bounds: dict[str, float], inside: list[float], outside: list[float]
) -> None:
    for value in inside:
        require_range("a.b", value, **bounds)
    for value in outside:
        with pytest.raises(ConfigError, match=r"^a\.b = .*: must be [<>]"):
            require_range("a.b", value, **bounds)
    for value in (float("nan"), float("inf"), float("-inf")):
        with pytest.raises(ConfigError, match=r"^a\.b = .*: must be a finite number$"):
            require_range("a.b", value, **bounds)


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "null"), (True, "true"), (False, "false"), (1, "1"), (0.0, "0.0"), ("x", "'x'")],
)
def test_values_are_shown_as_a_user_writes_them(value: object, text: str) -> None:
    assert shown(value) == text
