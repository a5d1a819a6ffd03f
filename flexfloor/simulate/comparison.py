"""Several policies over one scenario, and how they compare.

Invariants:
- Sums over epochs are compared, never means of ratios.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from flexfloor.simulate.outcome import StepOutcome
from flexfloor.simulate.policies import POLICIES, Policy
from flexfloor.simulate.run import simulate
from flexfloor.simulate.scenario import Scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A policy's epochs, without those in which nothing can have been learned."""

    policy: Policy
    steps: tuple[StepOutcome, ...]

    @property
    def throughput(self) -> float:
        """Response tokens per second of generation."""
        return self._sum("tokens") / self._sum("wall_s")

    @property
    def tokens_per_occupied(self) -> float:
        """Response tokens per occupied rank-second."""
        return self._sum("tokens") / self._sum("occupied_s")

    @property
    def idle_fraction(self) -> float:
        """Share of the occupied time in which a rank's own responses were finished."""
        return self._sum("idle_s") / self._sum("occupied_s")

    @property
    def step_s(self) -> float:
        """Of a step, generation and training, on average."""
        return self._sum("step_s") / len(self.steps)

    @property
    def wall_s(self) -> float:
        """Of a step's generation, on average."""
        return self._sum("wall_s") / len(self.steps)

    @property
    def active_ranks(self) -> float:
        """Occupied ranks, on average over the seconds of generation."""
        return self._sum("occupied_s") / self._sum("wall_s")

    @property
    def trained_fraction(self) -> float:
        """Of all tokens: trained beside generation."""
        return self._sum("overlapped_tokens") / self._sum("trained_tokens")

    @property
    def hidden_share(self) -> float:
        """Of the training that could lie beside generation, what did; 1 where none could."""
        hideable = self._sum("hideable_s")
        return self._sum("hidden_s") / hideable if hideable > 0.0 else 1.0

    @property
    def overlap_step_ratio(self) -> float:
        """Seconds of steps over those of steps that generate the same way and train afterwards."""
        return self._sum("step_s") / self._sum("plain_step_s")

    def mean(self, name: str) -> float:
        """Of a step's field, over the steps."""
        return self._sum(name) / len(self.steps)

    def _sum(self, name: str) -> float:
        return float(sum(getattr(step, name) for step in self.steps))


def compare(
    scenario: Scenario,
    policies: Sequence[str],
    epochs: int,
    *,
    objective: str = "throughput",
    max_slowdown: float = 0.0,
) -> list[Result]:
    """Each policy over the same lengths.

    Args:
        objective, max_slowdown: of guided shrinks (`schedule.objective`).
    """
    aiming = [replace(POLICIES[name], objective=objective, max_slowdown=max_slowdown) for name in policies]
    return [result_of(scenario, policy, epochs) for policy in aiming]


def trade_off(
    scenario: Scenario, slowdowns: Sequence[float], epochs: int, policy: str = "flexfloor"
) -> list[Result]:
    """A guided policy where ever more of a rollout's seconds may be given for rank-seconds.

    Args:
        slowdowns: shares of the seconds.
    """
    guided = POLICIES[policy]
    allowed = [
        replace(guided, name=f"{100 * share:.3g}% slower", objective="occupancy", max_slowdown=share)
        for share in slowdowns
    ]
    return [result_of(scenario, policy, epochs) for policy in allowed]


def result_of(scenario: Scenario, policy: Policy, epochs: int) -> Result:
    """One policy; the first epoch counts only where there is no other."""
    steps = tuple(simulate(scenario, policy, epochs))
    return Result(policy=policy, steps=steps[1:] or steps)
