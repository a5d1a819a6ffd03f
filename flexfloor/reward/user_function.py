"""The user's own reward function, with verl's signature.

`compute_score(data_source, solution_str, ground_truth, extra_info=None, **kwargs)` returns a number or a
mapping with `score`. It gets `extra_info` and `finish_reason` only where its signature names them, and the
configured keyword arguments.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from flexfloor.data.types import Prompt
from flexfloor.data.user_file import load_user_file
from flexfloor.errors import ConfigError
from flexfloor.reward.config import CustomRewardConfig
from flexfloor.reward.types import Scorer

SETTING = "reward.custom_reward_function"
REQUIRED = ("data_source", "solution_str", "ground_truth")
OFFERED = ("extra_info", "finish_reason")


def load_user_function(cfg: CustomRewardConfig) -> Scorer:
    """The function `cfg.name` of the file `cfg.path` as a scorer.

    Raises:
        ConfigError: the file or the function is missing, the file raises, or the function does not take
            the arguments that it would get.
    """
    assert cfg.path is not None, "no file is set"
    function = getattr(load_user_file(cfg.path, f"{SETTING}.path"), cfg.name, None)
    if not callable(function):
        raise ConfigError(f"{SETTING}.name={cfg.name}: {cfg.path} has no function of that name")
    if inspect.iscoroutinefunction(function):
        raise ConfigError(f"{SETTING}.name={cfg.name}: it is async, allowed: a plain function")
    offered = _offered(function, cfg)

    def score(prompt: Prompt, response_text: str, finish_reason: str) -> Any:
        arguments = {
            "data_source": prompt.data_source,
            "solution_str": response_text,
            "ground_truth": prompt.ground_truth,
            "extra_info": dict(prompt.extra_info),
            "finish_reason": finish_reason,
        }
        return function(**{name: arguments[name] for name in (*REQUIRED, *offered)}, **cfg.kwargs)

    return score


def _offered(function: Callable[..., Any], cfg: CustomRewardConfig) -> list[str]:
    """Which of `OFFERED` the function names, after a check that it can be called."""
    signature = inspect.signature(function)
    offered = [name for name in OFFERED if name in signature.parameters]
    reserved = [name for name in (*REQUIRED, *OFFERED) if name in cfg.kwargs]
    if reserved:
        raise ConfigError(f"{SETTING}.kwargs.{reserved[0]} is not set here, the function gets it anyway")
    try:
        signature.bind(**dict.fromkeys((*REQUIRED, *offered, *cfg.kwargs)))
    except TypeError as error:
        raise ConfigError(
            f"{SETTING}.name={cfg.name}, {cfg.name}{signature} cannot be called: {error}; it gets "
            f"{', '.join((*REQUIRED, *OFFERED))} and {SETTING}.kwargs"
        ) from error
    return offered
