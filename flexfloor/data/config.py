"""Settings of the data: where prompts come from, how long they may be, in which order they are taken.

Prompts come either from files (verl's rows, parquet or jsonl) or from generated tasks, never from
both. The checks here need no file; what a file or a task holds is checked when it is loaded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from flexfloor.errors import ConfigError

TRUNCATIONS = ("error", "left", "right")


@dataclass(kw_only=True)
class TaskConfig:
    """One part of a mixture of generated tasks."""

    name: str = ""
    """a reasoning-gym task, e.g. `spell_backward`"""
    path: str | None = None
    """Python file that registers the task with reasoning-gym; null = the task ships with it"""
    weight: float = 1.0
    """share of the rows, relative to the other tasks' weights"""
    config: dict[str, Any] = field(default_factory=dict)
    """the task's own options, passed through; `seed` and `size` belong to `DataConfig`"""

    def __post_init__(self) -> None:
        if not self.name:
            raise ConfigError("data.tasks: name is empty, allowed: the name of a reasoning-gym task")
        if not (math.isfinite(self.weight) and self.weight > 0):
            raise ConfigError(f"data.tasks[{self.name}].weight={self.weight}, allowed: a number above 0")
        for reserved, instead in (("seed", "data.task_seed"), ("size", "data.train_size or data.val_size")):
            if reserved in self.config:
                raise ConfigError(f"data.tasks[{self.name}].config.{reserved} is not set here, use {instead}")


@dataclass(kw_only=True)
class DataConfig:
    """Prompts for training and validation."""

    train_files: list[str] = field(default_factory=list)
    """parquet or jsonl files with verl's rows"""
    val_files: list[str] = field(default_factory=list)
    """as `train_files`; none = no validation when `train_files` are given"""
    tasks: list[TaskConfig] = field(default_factory=list)
    """mixture of generated tasks, instead of files"""
    train_size: int = 1024
    """training rows to generate from `tasks`"""
    val_size: int = 128
    """validation rows to generate from `tasks`; rows that also occur in training are left out"""
    task_seed: int = 0
    """what the generated rows depend on"""
    train_batch_size: int = 32
    """prompts a step"""
    val_batch_size: int | None = None
    """prompts validated at once; null = all"""
    max_prompt_length: int = 512
    """tokens"""
    max_response_length: int = 512
    """tokens, with the end-of-sequence token"""
    truncation: str = "error"
    """what happens to a longer prompt: `error`, or cut at its `left` or its `right` end"""
    filter_overlong_prompts: bool = False
    """leave longer prompts out before `truncation` is looked at"""
    shuffle: bool = True
    """a new order for every epoch; false = the order of the rows"""
    seed: int = 0
    """what the shuffled order depends on"""
    chat_template: bool = True
    """render messages with the tokenizer's chat template; false = the contents, joined by newlines"""
    prompt_key: str = "prompt"
    """column that holds the messages"""

    def __post_init__(self) -> None:
        for name in ("train_size", "train_batch_size", "max_prompt_length", "max_response_length"):
            _at_least(name, getattr(self, name), 1)
        for name in ("val_size", "seed"):
            _at_least(name, getattr(self, name), 0)
        if self.val_batch_size is not None:
            _at_least("val_batch_size", self.val_batch_size, 1)
        if self.truncation not in TRUNCATIONS:
            raise ConfigError(f"data.truncation={self.truncation!r}, allowed: {', '.join(TRUNCATIONS)}")
        if self.tasks and (self.train_files or self.val_files):
            given = "train_files" if self.train_files else "val_files"
            raise ConfigError(f"data.tasks and data.{given} are both set, allowed: files or tasks")

    def require_source(self) -> None:
        """Raise `ConfigError` when there is nothing to train on: neither files nor tasks."""
        if not self.tasks and not self.train_files:
            raise ConfigError("data.train_files and data.tasks are both empty, allowed: exactly one of them")


def _at_least(name: str, value: int, minimum: int) -> None:
    if value < minimum:
        raise ConfigError(f"data.{name}={value}, allowed: {minimum} or more")
