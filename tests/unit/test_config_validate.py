"""Settings that are fine alone and do not fit each other."""

from __future__ import annotations

import dataclasses

import pytest

from flexfloor.config import (
    Config,
    LaunchConfig,
    ParallelConfig,
    TrainerConfig,
    can_validate,
    validate,
    world_size,
)
from flexfloor.data.config import DataConfig, TaskConfig
from flexfloor.elastic.config import ElasticConfig
from flexfloor.errors import ConfigError
from flexfloor.models.config import ModelConfig
from flexfloor.overlap.config import OverlapConfig
from flexfloor.rollout.config import RolloutConfig
from flexfloor.train.config import ActorConfig

TASKS = [TaskConfig(name="spell_backward")]


def _data(**fields: object) -> DataConfig:
    return DataConfig(tasks=TASKS, **fields)


def _config(**sections: object) -> Config:
    return Config(**{"data": _data(), **sections})


def test_the_defaults_with_a_task_fit() -> None:
    validate(_config())


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        (
            {"launch": LaunchConfig(nproc=4), "parallel": ParallelConfig(ep=3)},
            "launch.nproc = 4: must be a multiple of parallel.ep = 3",
        ),
        (
            {
                "launch": LaunchConfig(nproc=4),
                "parallel": ParallelConfig(ep=4),
                "model": ModelConfig(num_experts=6),
            },
            "model.num_experts = 6: must be a multiple of parallel.ep = 4",
        ),
        (
            {"launch": LaunchConfig(nproc=4), "parallel": ParallelConfig(ep=4, tp=4)},
            "model.num_query_groups = 2: must be a multiple of parallel.tp = 4",
        ),
        (
            {
                "launch": LaunchConfig(nproc=4),
                "parallel": ParallelConfig(ep=2, tp=2),
                "elastic": ElasticConfig(policy="guided"),
                "overlap": OverlapConfig(mode="on"),
            },
            "overlap.mode = 'on': must be off or auto: parallel.ep=2 is one replica of parallel.tp=2 ranks",
        ),
        (
            {"rollout": RolloutConfig(n=1)},
            "rollout.n = 1: must be 2 or more for algorithm.adv_estimator=grpo",
        ),
        ({"rollout": RolloutConfig(temperature=0.0)}, "rollout.temperature = 0.0: must be above 0"),
        (
            {
                "data": DataConfig(tasks=TASKS, train_batch_size=10),
                "actor": ActorConfig(ppo_mini_batch_size=4),
            },
            "actor.ppo_mini_batch_size = 4: must be a divisor of data.train_batch_size = 10",
        ),
        (
            {
                "data": DataConfig(tasks=TASKS, train_batch_size=4),
                "actor": ActorConfig(ppo_mini_batch_size=8),
            },
            "actor.ppo_mini_batch_size = 8: must be a divisor of data.train_batch_size = 4",
        ),
        (
            {"trainer": TrainerConfig(save_best=True)},
            "trainer.save_best = true: must be false without validation during training: set trainer.test_",
        ),
        (
            {"data": DataConfig(train_files=["a.jsonl"]), "trainer": TrainerConfig(test_freq=5)},
            "trainer.test_freq = 5: must be -1 without data.val_files",
        ),
        (
            {
                "launch": LaunchConfig(nproc=4),
                "parallel": ParallelConfig(ep=4),
                "elastic": ElasticConfig(rungs=[1, 4]),
            },
            "elastic.rungs = [1, 4]: must be sizes below parallel.ep = 4",
        ),
        ({"data": DataConfig()}, "data.train_files and data.tasks are both empty"),
    ],
)
def test_what_does_not_fit_is_told_with_both_fields(sections: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        validate(_config(**sections))
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(("nproc", "ep", "num_experts"), [(4, 4, 8), (4, 2, 2), (8, 2, 6), (1, 1, 1)])
def test_sizes_that_divide_are_taken(nproc: int, ep: int, num_experts: int) -> None:
    model = ModelConfig(num_experts=num_experts, moe_router_topk=1, norm_topk_prob=False)
    validate(_config(launch=LaunchConfig(nproc=nproc), parallel=ParallelConfig(ep=ep), model=model))


def test_the_kv_budget_must_hold_one_longest_sequence() -> None:
    model = ModelConfig(
        num_layers=3, hidden_size=64, num_attention_heads=8, num_query_groups=2, dtype="float64"
    )
    data = DataConfig(tasks=TASKS, max_prompt_length=30, max_response_length=70)
    # key and value, 3 layers, 2 KV heads of 64 / 8 = 8 channels, 8 bytes each; 100 tokens
    needed = 2 * 3 * 2 * 8 * 8 * 100
    validate(_config(model=model, data=data, rollout=RolloutConfig(kv_budget_bytes=needed)))
    with pytest.raises(
        ConfigError, match=f"rollout.kv_budget_bytes = {needed - 1}: must be {needed} or more"
    ):
        validate(_config(model=model, data=data, rollout=RolloutConfig(kv_budget_bytes=needed - 1)))


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_a_number_that_is_not_finite_is_refused_wherever_it_stands(value: float) -> None:
    config = _config()
    config.actor = dataclasses.replace(config.actor)
    config.actor.optim.eps = value
    with pytest.raises(ConfigError, match=r"actor\.optim\.eps = -?(inf|nan): must be a finite number"):
        validate(config)


def test_torchrun_decides_the_world_size(monkeypatch: pytest.MonkeyPatch) -> None:
    launch = LaunchConfig(nproc=1)
    assert world_size(launch, {}) == 1
    assert world_size(launch, {"WORLD_SIZE": "6"}) == 1, "a stray variable is not torchrun"
    assert world_size(launch, {"RANK": "0", "WORLD_SIZE": "6"}) == 6
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "6")
    validate(_config(launch=launch, parallel=ParallelConfig(ep=2)))
    with pytest.raises(ConfigError, match=r"^WORLD_SIZE = 6: must be a multiple of parallel\.ep = 4"):
        validate(_config(launch=launch, parallel=ParallelConfig(ep=4)))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (_data(), True),
        (_data(val_size=0), False),
        (DataConfig(train_files=["a.jsonl"]), False),
        (DataConfig(train_files=["a.jsonl"], val_files=["b.jsonl"]), True),
    ],
)
def test_there_is_validation_when_there_are_prompts_for_it(data: DataConfig, expected: bool) -> None:
    assert can_validate(data) is expected
