"""reasoning-gym's generators by name, with its complaints turned into ours.

A generator's options are the fields of its own config class. It checks them with assertions, and some
bad values show only when an entry is generated; both become a `ConfigError` that names task and options.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flexfloor.data.config import TaskConfig
from flexfloor.data.user_file import load_user_file
from flexfloor.errors import ConfigError

if TYPE_CHECKING:
    from reasoning_gym.dataset import ProceduralDataset


def create_task(task: TaskConfig, seed: int, size: int) -> ProceduralDataset:
    """The generator `task.name` with its options; some make all `size` entries at once.

    Raises:
        ConfigError: the task is unknown (names the nearest), an option is unknown (names the allowed
            ones), or the task rejects a value.
    """
    options = _option_names(task)
    unknown = [name for name in task.config if name not in options]
    if unknown:
        raise ConfigError(
            f"data.tasks[{task.name}].config.{unknown[0]} is unknown, allowed: {', '.join(options)}"
        )
    from reasoning_gym.factory import create_dataset

    try:
        return create_dataset(task.name, seed=seed, size=size, **task.config)
    except Exception as error:
        raise _rejected(task, error) from error


def generate_entry(dataset: ProceduralDataset, task: TaskConfig, index: int) -> Mapping[str, Any]:
    """Entry `index` with `question`, `answer`, `metadata`; `ConfigError` if the generator cannot make it."""
    try:
        return dataset[index]
    except Exception as error:
        raise _rejected(task, error) from error


def _option_names(task: TaskConfig) -> list[str]:
    if task.path is not None:
        load_user_file(task.path, f"data.tasks[{task.name}].path")
    from reasoning_gym.factory import DATASETS

    if task.name not in DATASETS:
        nearest = difflib.get_close_matches(task.name, DATASETS, n=1, cutoff=0.0)[0]
        raise ConfigError(
            f"data.tasks: name={task.name!r} is unknown, nearest: {nearest!r} "
            f"({len(DATASETS)} tasks are there; a task of your own needs `path`, the file that registers it)"
        )
    _, config_class = DATASETS[task.name]
    return [f.name for f in dataclasses.fields(config_class) if f.name not in ("seed", "size")]


def _rejected(task: TaskConfig, error: Exception) -> ConfigError:
    reason = str(error) or type(error).__name__
    return ConfigError(f"data.tasks[{task.name}].config={task.config}: the task rejects it: {reason}")
