"""Which function scores: the user's where one is set, else the generated task's own."""

from __future__ import annotations

from collections.abc import Sequence

from flexfloor.data.types import Prompt
from flexfloor.errors import ConfigError
from flexfloor.reward.config import RewardConfig
from flexfloor.reward.scorers import TaskScorer, is_task_source
from flexfloor.reward.types import Scorer
from flexfloor.reward.user_function import load_user_function


def load_scorer(cfg: RewardConfig, prompts: Sequence[Prompt]) -> Scorer:
    """The scorer of `prompts`, which are all that will be scored, training and validation.

    Raises:
        ConfigError: the user's function cannot be used, or a data source has no scorer.
    """
    if cfg.custom_reward_function.path is not None:
        return load_user_function(cfg.custom_reward_function)
    unknown = sorted({p.data_source for p in prompts if not is_task_source(p.data_source)})
    if unknown:
        raise ConfigError(
            f"data source {unknown[0]} has no scorer of its own, set reward.custom_reward_function.path"
        )
    return TaskScorer(prompts)
