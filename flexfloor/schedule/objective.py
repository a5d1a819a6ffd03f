"""Which way of going on is taken, of those on the frontier.

Invariants:
- A course that is taken ends no more than the allowed seconds after the earliest end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flexfloor.schedule.cost import CostModel
from flexfloor.schedule.courses import Course

OBJECTIVES = ("step_time", "throughput", "occupancy")
EQUAL_SHARE, MOST_EQUAL_SHARE = 0.01, 0.05
"""Ends that differ by less than this share of the rollout count as one: no estimate is that good. Where costs
are measured, they are known to no more than their fit's error, of which as much as the second counts."""

FREE_SHARE = 0.05
"""What a rank that has left and cannot train yet is worth, of one that can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """What the training stage makes of released ranks."""

    rank_seconds: float
    """Of work that it could do before the rollout ends; 0 where it does not start early."""
    ranks: int
    """That share what is left afterwards."""
    least: int = 1
    """Released ranks that can begin; fewer have not the memory."""

    def useful(self, sizes: np.ndarray) -> np.ndarray:
        """[R] ranks that can train while so many generate."""
        released = np.maximum(0, self.ranks - sizes)
        return np.where((released >= self.least) & (self.rank_seconds > 0), released, 0)

    def held(self, sizes: np.ndarray) -> np.ndarray:
        """[R] ranks that count as taken while so many generate: those that cannot train, nearly as much as
        those that generate."""
        if self.rank_seconds <= 0:
            return sizes.astype(float)
        return FREE_SHARE * sizes + (1.0 - FREE_SHARE) * (self.ranks - self.useful(sizes))


NO_EARLY_TRAINING = Training(rank_seconds=0.0, ranks=1)


COMPLETE_SHARE = 0.9
"""Of the groups, those that are taken to be complete before the rollout ends: all but the longest."""


def early_training(
    rows: np.ndarray, costs: CostModel, *, ranks: int, ep_groups: int, least: int = 1
) -> Training:
    """What released ranks of one expert group could train before the rollout ends.

    Args:
        rows: [P] expected of each prompt's responses together; only of what may be trained early.
        ranks: of the expert group.
        ep_groups: that share the prompts.
        least: released ranks that can begin.
    """
    counted = np.sort(rows)[: int(COMPLETE_SHARE * len(rows))].sum() / ep_groups
    # The ranks share the rows, and a rank's seconds have a constant part.
    seconds = ranks * costs.train_seconds(float(counted) / ranks)
    return Training(rank_seconds=seconds, ranks=ranks, least=least)


def slack_share(objective: str, max_slowdown: float, cost_error: float = 0.0) -> float:
    """Share of the rollout's seconds that may be given for rank-seconds.

    Args:
        cost_error: relative, of what passes are taken to cost.
    """
    equal = min(max(EQUAL_SHARE, cost_error), MOST_EQUAL_SHARE)
    return max(equal, max_slowdown) if objective == "occupancy" else equal


def choose(
    courses: Sequence[Course],
    *,
    objective: str,
    allowed_seconds: float,
    training: Training = NO_EARLY_TRAINING,
) -> Course:
    """The course with the fewest occupied rank-seconds of those that end early enough.

    Args:
        objective: what ends early: the rollout for `throughput` and `occupancy`, and for `step_time` the
            training after it.
        allowed_seconds: by which the end may be later than the earliest.
    """
    early = training if objective == "step_time" else NO_EARLY_TRAINING
    ends = [_end_seconds(course, early) for course in courses]
    within = [index for index, end in enumerate(ends) if end <= min(ends) + allowed_seconds]
    return courses[min(within, key=lambda index: (courses[index].occupied_seconds, ends[index]))]


def _end_seconds(course: Course, training: Training) -> float:
    """Until rollout and training have ended, if training uses every rank-second that it can."""
    left = max(0.0, training.rank_seconds - course.useful_seconds)
    return course.wall_seconds + left / training.ranks
