"""Settings that are fine alone and do not fit each other.

Pure: no file is touched and no model is built (`flexfloor.preflight` looks at files and data).
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Iterator, Mapping
from typing import Any

from flexfloor.checks import require
from flexfloor.config.launch import LaunchConfig
from flexfloor.config.trainer import NEVER
from flexfloor.config.tree import Config
from flexfloor.data.config import DataConfig
from flexfloor.elastic.config import check_rungs
from flexfloor.models.tp_fit import check_tp_fit
from flexfloor.overlap.config import check_overlap
from flexfloor.rollout.budget import tokens_in_budget
from flexfloor.rollout.kv_shape import model_kv_bytes_per_token


def validate(config: Config) -> None:
    """Raise `ConfigError` for the first setting that does not fit the others."""
    for check in (
        finite_numbers,
        _ranks_by_groups,
        _experts_by_ranks,
        _replicas,
        _shrinking,
        _known_lengths,
        _groups_of_responses,
        _mini_batches,
        _kv_budget,
        _prompts,
        _best_by_validation,
    ):
        check(config)


def world_size(launch: LaunchConfig, environ: Mapping[str, str] = os.environ) -> int:
    """Ranks of the run: those of the launcher that started this process as one, else `launch.num_ranks`."""
    return int(environ["WORLD_SIZE"]) if is_rank(environ) else launch.num_ranks


def can_validate(data: DataConfig) -> bool:
    """Whether there are prompts to validate on; without them a run goes unvalidated unless it asks for it."""
    return bool(data.val_files) or (bool(data.tasks) and data.val_size > 0)


def is_rank(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether a launcher has started this process as one rank of a run."""
    return "RANK" in environ and "WORLD_SIZE" in environ


def finite_numbers(config: Config) -> None:
    """Raise `ConfigError` for a number that is none."""
    for name, value in _numbers(dataclasses.asdict(config), ""):
        require(math.isfinite(value), name, value, "a finite number")


def _numbers(node: Any, name: str) -> Iterator[tuple[str, float]]:
    if isinstance(node, float):
        yield name, node
    elif isinstance(node, dict):
        for key, value in node.items():
            yield from _numbers(value, f"{name}.{key}" if name else str(key))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from _numbers(value, f"{name}[{index}]")


def _ranks_by_groups(config: Config) -> None:
    ranks, ep = world_size(config.launch), config.parallel.ep
    started = "launch.slurm.nodes x launch.nproc" if config.launch.kind == "slurm" else "launch.nproc"
    name = "WORLD_SIZE" if is_rank() else started
    require(ranks % ep == 0, name, ranks, f"a multiple of parallel.ep = {ep}")


def _experts_by_ranks(config: Config) -> None:
    experts, ep = config.model.num_experts, config.parallel.ep
    require(experts % ep == 0, "model.num_experts", experts, f"a multiple of parallel.ep = {ep}")


def _replicas(config: Config) -> None:
    check_tp_fit(config.model, config.parallel.tp)


def _shrinking(config: Config) -> None:
    check_rungs(config.elastic, config.parallel.ep)
    check_overlap(config.overlap, config.elastic, config.parallel.ep)


def _known_lengths(config: Config) -> None:
    policy, known = config.schedule.policy, config.rollout.lengths_from is not None
    allowed = "static, longest_first or flexfloor without rollout.lengths_from"
    require(policy != "oracle" or known, "schedule.policy", policy, allowed)


def _groups_of_responses(config: Config) -> None:
    rollout = config.rollout
    allowed = "2 or more for algorithm.adv_estimator=grpo, which compares the responses of one prompt"
    require(rollout.n >= 2, "rollout.n", rollout.n, allowed)
    allowed = "above 0 in training, which divides the logits by it"
    require(rollout.temperature > 0, "rollout.temperature", rollout.temperature, allowed)


def _mini_batches(config: Config) -> None:
    mini, batch = config.actor.ppo_mini_batch_size, config.data.train_batch_size
    allowed = f"a divisor of data.train_batch_size = {batch}"
    require(batch % mini == 0, "actor.ppo_mini_batch_size", mini, allowed)


def _kv_budget(config: Config) -> None:
    data, budget = config.data, config.rollout.kv_budget_bytes
    per_token = model_kv_bytes_per_token(config.model)
    longest = data.max_prompt_length + data.max_response_length
    allowed = (
        f"{longest * per_token} or more, for one sequence of data.max_prompt_length + "
        f"data.max_response_length = {longest} tokens of {per_token} bytes"
    )
    fitting = tokens_in_budget(kv_budget_bytes=budget, bytes_per_token=per_token)
    require(fitting >= longest, "rollout.kv_budget_bytes", budget, allowed)


def _prompts(config: Config) -> None:
    config.data.require_source()
    every = config.trainer.test_freq
    allowed = "-1 without data.val_files or data.val_size: there is nothing to validate on"
    require(can_validate(config.data) or every == NEVER, "trainer.test_freq", every, allowed)


def _best_by_validation(config: Config) -> None:
    trainer = config.trainer
    allowed = (
        "false without validation during training: set trainer.test_freq, and data.val_files or data.val_size"
    )
    validates = can_validate(config.data) and trainer.test_freq != NEVER
    require(validates or not trainer.save_best, "trainer.save_best", trainer.save_best, allowed)
