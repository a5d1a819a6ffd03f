"""Settings of the reward: the user's own function, and how many threads score."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from flexfloor.errors import ConfigError


@dataclass(kw_only=True)
class CustomRewardConfig:
    """A function of the user that scores every response."""

    path: str | None = None
    """Python file; null = generated tasks are scored by their own scorer"""
    name: str = "compute_score"
    """function in that file"""
    kwargs: dict[str, Any] = field(default_factory=dict)
    """further keyword arguments of the function"""

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise ConfigError(
                f"reward.custom_reward_function.name={self.name!r}, allowed: the name of a function"
            )


@dataclass(kw_only=True)
class RewardConfig:
    """How responses are scored."""

    custom_reward_function: CustomRewardConfig = field(default_factory=CustomRewardConfig)
    num_workers: int = 1
    """threads a rank; more help a function that waits (a judge behind a network) and is thread safe"""
    timeout_seconds: float = 300.0
    """longest wait for the next result before the reward counts as hung"""

    def __post_init__(self) -> None:
        if self.num_workers < 1:
            raise ConfigError(f"reward.num_workers={self.num_workers}, allowed: 1 or more")
        if not self.timeout_seconds > 0:
            raise ConfigError(f"reward.timeout_seconds={self.timeout_seconds}, allowed: above 0")
