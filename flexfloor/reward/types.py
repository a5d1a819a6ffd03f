"""What a reward function is to the rest of the program, and what it may return.

Invariants:
- A score, and each number reported beside it, is a finite number.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from flexfloor.data.types import Prompt

Scorer = Callable[[Prompt, str, str], Any]
"""(prompt, response text, finish reason) -> a number, or a mapping with `score`"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardResult:
    """The reward of one response."""

    score: float
    extra: Mapping[str, float] = field(default_factory=dict)
    """the other numbers that the reward function returned, by name"""


def as_result(returned: Any) -> RewardResult:
    """What a reward function `returned`, checked; a mapping's values that are no numbers are left out.

    Raises:
        ValueError: there is no score, or a number is not finite.
    """
    if not isinstance(returned, Mapping):
        return RewardResult(score=_finite("score", returned))
    if "score" not in returned:
        raise ValueError(
            f"the returned mapping has no score, it has: {', '.join(map(str, returned)) or 'nothing'}"
        )
    return RewardResult(
        score=_finite("score", returned["score"]),
        extra={
            str(name): _finite(name, value)
            for name, value in returned.items()
            if name != "score" and _is_number(value)
        },
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real | np.bool_)


def _finite(name: str, value: Any) -> float:
    if not _is_number(value):
        raise ValueError(f"{name} is {value!r} of type {type(value).__name__}, allowed: a number")
    if not math.isfinite(value):
        raise ValueError(f"{name} is {value}, allowed: a finite number")
    return float(value)
