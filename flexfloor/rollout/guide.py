"""What a schedule tells the engine: how long responses may go on, what passes cost, what to do about it.

The engine asks the guide at each decision, on every rank. What the ranks tell each other is integers, so
that all decide the same whatever each of them expects.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flexfloor.rollout.types import Response
from flexfloor.schedule.cost import CostModel
from flexfloor.schedule.frontier import Limits, horizons
from flexfloor.schedule.guided import GuidedShrink, deviation, told
from flexfloor.schedule.objective import NO_EARLY_TRAINING, Training
from flexfloor.schedule.outlook import Outlook, Unfinished
from flexfloor.schedule.rebalance import rebalance
from flexfloor.schedule.shrink import Handover, Standing, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Guidance:
    """Of one rollout."""

    outlook: Outlook
    costs: CostModel
    """The same on every rank."""
    objective: str
    """One of `schedule.objective.OBJECTIVES`."""
    max_slowdown: float
    """Share of the rollout's seconds that the objective `occupancy` may give for rank-seconds."""
    rebalances: bool
    """Whether ranks with room take what waits on others."""
    training: Training = NO_EARLY_TRAINING
    """What an expert group's released ranks may train before the rollout ends."""
    explores: bool = False
    """Whether groups shrink by the greedy rule, so that smaller ones and shrinks are measured at all."""


class Guide:
    """Guidance in the course of a rollout on one rank."""

    def __init__(self, guidance: Guidance, limits: Limits, *, longest: int):
        """Args:
        limits: of each rank when the rollout begins.
        longest: most tokens that a response of the group may have.
        """
        self.guidance, self.limits = guidance, limits
        self.seconds_left: float | None = None
        """Until the rollout is likely to end, as the group's first rank found last; None before it did."""
        self._horizons = horizons(longest)
        self._shrink = GuidedShrink(
            guidance.costs,
            self._horizons,
            limits,
            objective=guidance.objective,
            max_slowdown=guidance.max_slowdown,
            training=guidance.training,
        )

    def note(self, ended: Sequence[Response]) -> None:
        """Learn from responses that have ended on this rank."""
        for each in ended:
            truncated = each.finish_reason == "length"
            self.guidance.outlook.finished(each.uid, len(each.token_ids), truncated=truncated)

    def expected(self, unfinished: Sequence[Unfinished]) -> tuple[tuple[int, ...], int]:
        """`Standing.alive` and `Standing.deviation` of this rank."""
        survival = self.guidance.outlook.survival(unfinished, self._horizons)
        return told(survival), deviation(survival, self._horizons)

    def decide(
        self, standings: Sequence[Standing], rungs: Sequence[int], *, passes: int, may_part: Sequence[int]
    ) -> tuple[Step, float]:
        """What to do now (`GuidedShrink.decide`), and seconds until the rollout is likely to end then."""
        step = self._shrink.decide(standings, rungs, passes=passes, may_part=may_part)
        assert self._shrink.seconds_left is not None
        return step, self._shrink.seconds_left

    def rebalance(self, standings: Sequence[Standing]) -> list[Handover]:
        """Who takes what waits on others; nobody unless the guidance says so."""
        if not self.guidance.rebalances:
            return []
        limits = self.limits
        return rebalance(standings, sequences=limits.sequences, kv_tokens=limits.kv_tokens)
