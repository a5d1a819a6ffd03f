"""The scorers of generated tasks: reasoning-gym's own, as they are.

The answer is what stands in the last `<answer>` element, else the whole response, without the space
around it. A generator of the same options scores, because some scorers look at the options.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from flexfloor.data.config import TaskConfig
from flexfloor.data.task_registry import create_task
from flexfloor.data.tasks import SOURCE_PREFIX
from flexfloor.data.types import Prompt
from flexfloor.errors import ConfigError

if TYPE_CHECKING:
    from reasoning_gym.dataset import ProceduralDataset


class TaskScorer:
    """Scores responses to prompts of reasoning-gym tasks; safe to call from several threads.

    Args:
        prompts: all prompts that will be scored; their generators are made at once.

    Raises:
        ConfigError: a prompt does not carry what its task's scorer needs.
    """

    def __init__(self, prompts: Iterable[Prompt]):
        self._tasks: dict[str, ProceduralDataset] = {}
        # reasoning-gym promises no thread safety; its scorers are pure Python, so a lock costs nothing.
        self._lock = threading.Lock()
        for prompt in prompts:
            _check_scorable(prompt)
            if _key(prompt) not in self._tasks:
                self._tasks[_key(prompt)] = _create(prompt)

    def __call__(self, prompt: Prompt, response_text: str, finish_reason: str) -> float:
        """The task's score of the response, as a rule between 0 and 1."""
        from reasoning_gym.utils import extract_answer

        entry = {
            "question": prompt.extra_info.get("question", prompt.text),
            "answer": prompt.ground_truth,
            "metadata": prompt.extra_info["metadata"],
        }
        answer = extract_answer(response_text)
        with self._lock:
            return self._tasks[_key(prompt)].score_answer(
                response_text.strip() if answer is None else answer, entry
            )


def is_task_source(data_source: str) -> bool:
    """Whether prompts of `data_source` are scored by a task's own scorer."""
    return data_source.startswith(SOURCE_PREFIX)


def _check_scorable(prompt: Prompt) -> None:
    where = f"prompt {prompt.uid} of {prompt.data_source}"
    if not isinstance(prompt.extra_info.get("metadata"), Mapping):
        raise ConfigError(
            f"{where}: the task's scorer needs the object extra_info.metadata; "
            "add it, or set reward.custom_reward_function.path"
        )
    if not isinstance(prompt.extra_info.get("task_options") or {}, Mapping):
        raise ConfigError(
            f"{where}: extra_info.task_options must be an object of the task's options, or null"
        )


def _create(prompt: Prompt) -> ProceduralDataset:
    name = prompt.data_source.removeprefix(SOURCE_PREFIX)
    try:
        return create_task(TaskConfig(name=name, config=_options(prompt)), seed=0, size=1)
    except ConfigError as error:
        raise ConfigError(f"prompt {prompt.uid} of {prompt.data_source} has no scorer: {error}") from error


def _options(prompt: Prompt) -> dict[str, Any]:
    # Parquet holds null where another row has an option and this one does not.
    options = prompt.extra_info.get("task_options") or {}
    return {name: value for name, value in options.items() if value is not None}


def _key(prompt: Prompt) -> str:
    return json.dumps([prompt.data_source, _options(prompt)], sort_keys=True, default=str)
