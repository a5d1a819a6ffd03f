"""The cost-guided decision of one rollout: the same on every rank of an expert group.

At each decision the ranks tell how many of their responses are likely to be unfinished after so many more
passes. Time is the cost model's, counted in passes, and never a clock's, on which ranks would differ.

Invariants:
- Equal standings, costs and options give equal decisions, whatever the machine's speed.
- What slower courses were taken for adds up to no more than the allowed share of the rollout.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flexfloor.schedule.cost import CostModel, PassLoad
from flexfloor.schedule.even_out import evened_out
from flexfloor.schedule.frontier import Curve, Limits, frontier
from flexfloor.schedule.objective import NO_EARLY_TRAINING, Training, choose, slack_share
from flexfloor.schedule.parting import NO_PARTING, Parting, luck, unevenness
from flexfloor.schedule.shrink import Standing, Step

PARTS = 256
"""A response is told in so many parts."""


class GuidedShrink:
    """Keeps what one rollout has spent so far."""

    def __init__(
        self,
        costs: CostModel,
        horizons: np.ndarray,
        limits: Limits,
        *,
        objective: str,
        max_slowdown: float,
        training: Training = NO_EARLY_TRAINING,
    ):
        """Args:
        horizons: at which ranks tell their `Standing.alive`.
        max_slowdown: share of the rollout's seconds that `occupancy` may give for rank-seconds.
        """
        self.costs, self.horizons, self.limits = costs, horizons, limits
        self.objective, self.max_slowdown, self.training = objective, max_slowdown, training
        self.seconds_left: float | None = None
        """Until the rollout ends on the course that was chosen last."""
        self._elapsed_seconds = self._spent_seconds = 0.0

    def decide(
        self,
        standings: Sequence[Standing],
        rungs: Sequence[int],
        *,
        passes: int,
        may_part: Sequence[int] = (),
    ) -> Step:
        """What to do now.

        Args:
            standings: of the active ranks, by position.
            rungs: sizes below the present one that memory allows.
            passes: run since the last decision.
            may_part: sizes, the present one perhaps among them, whose ranks have the memory for all experts.
        """
        size = len(standings)
        self._elapsed_seconds += passes * self._present_pass_seconds(standings)
        early = self.training if self.objective == "step_time" else NO_EARLY_TRAINING
        parting = self._parting(standings, may_part)
        courses = frontier(self._curve(standings), size, rungs, self.costs, self.limits, early, parting)
        fastest = courses[0].wall_seconds
        share = slack_share(self.objective, self.max_slowdown, self.costs.pass_error)
        unslowed = self._elapsed_seconds + fastest - self._spent_seconds
        slack = share * unslowed - self._spent_seconds
        chosen = choose(
            courses,
            objective=self.objective,
            allowed_seconds=max(0.0, slack),
            training=early,
        )
        self.seconds_left = chosen.wall_seconds
        step = Step(size=chosen.next_size, parts=chosen.parts)
        if step.size < size or step.parts:
            self._spent_seconds += max(0.0, chosen.wall_seconds - fastest)
        return step

    def _parting(self, standings: Sequence[Standing], may_part: Sequence[int]) -> Parting:
        if not may_part:
            return NO_PARTING
        alive = np.array([standing.alive for standing in standings]) / PARTS
        alive[:, 0] = [standing.unfinished for standing in standings]
        stored = np.array([standing.kv_tokens / max(1, standing.unfinished) for standing in standings])
        falling = np.minimum.accumulate(alive, axis=1)
        now = unevenness(evened_out(falling, standings), stored, self.horizons, self.costs, self.limits)
        work = float(np.trapezoid(falling.sum(axis=0), self.horizons))
        share = float(np.linalg.norm([standing.deviation for standing in standings])) / max(work, 1.0)
        unfinished = sum(standing.unfinished for standing in standings)
        by_chance = [
            1.0 + share * luck(size, unfinished / (size * self.limits.sequences)) for size in may_part
        ]
        # Smaller groups are dealt their responses evenly when they shrink.
        even = [now if size == len(standings) else 1.0 for size in may_part]
        apart = tuple(known * chance for known, chance in zip(even, by_chance, strict=True))
        return Parting(sizes=tuple(may_part), unevenness=apart)

    def _curve(self, standings: Sequence[Standing]) -> Curve:
        unfinished = sum(standing.unfinished for standing in standings)
        alive = np.sum([standing.alive for standing in standings], axis=0) / PARTS
        # What is unfinished now is no matter of belief.
        alive[0] = unfinished
        stored = sum(standing.kv_tokens for standing in standings) / max(1, unfinished)
        return Curve(horizons=self.horizons, unfinished=np.minimum.accumulate(alive), stored=stored)

    def _present_pass_seconds(self, standings: Sequence[Standing]) -> float:
        load = PassLoad(
            ranks=len(standings),
            rows=max(standing.live for standing in standings),
            joining=0,
            context=max(standing.live_tokens for standing in standings),
        )
        return float(self.costs.pass_seconds(load))


def deviation(survival: np.ndarray, horizons: np.ndarray) -> int:
    """`Standing.deviation` of a rank.

    Args:
        survival: float [B, H], as for `told`.
        horizons: int [H].
    """
    return round(float(np.sqrt(variances(survival, horizons).sum())))


def variances(survival: np.ndarray, horizons: np.ndarray) -> np.ndarray:
    """[B] of the tokens that each response is likely to get yet; arguments as for `deviation`."""
    means = np.trapezoid(survival, horizons, axis=1)
    squares = 2 * np.trapezoid(survival * horizons, horizons, axis=1)
    return np.maximum(0.0, squares - means**2)


def told(survival: np.ndarray) -> tuple[int, ...]:
    """`Standing.alive` of a rank.

    Args:
        survival: float [B, H] of each unfinished response and horizon: the chance that it is unfinished.
    """
    return tuple(np.rint(PARTS * survival.sum(axis=0)).astype(int).tolist())
