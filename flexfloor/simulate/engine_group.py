"""An expert group as the engine runs it on these settings, pass for pass: for comparison with real rollouts.

Unlike a `Scenario`'s groups it has the engine's slots, ranks that learn each by themselves, and a decision
that is asked at every exchange; its ranks have memory for whatever they are to host.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flexfloor.elastic.floor import UNLIMITED, RankMemory
from flexfloor.schedule.cost import CostModel
from flexfloor.schedule.frontier import Limits, horizons
from flexfloor.schedule.guided import GuidedShrink
from flexfloor.schedule.slots import slot_sizes
from flexfloor.simulate.admit import NearFuture
from flexfloor.simulate.decision import Decision, Guided, SimpleRule
from flexfloor.simulate.elasticity import Elasticity
from flexfloor.simulate.group import Group
from flexfloor.simulate.outlook import Outlook
from flexfloor.simulate.rules import GroupRules
from flexfloor.simulate.telling import Apart
from flexfloor.simulate.workload import Workload

NO_BOUND = 2**31
"""Tokens that may join in a pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """Of a group without guidance."""

    policy: str
    """`elastic.policy`."""
    interval: int
    """`elastic.interval`."""
    kv_tokens: int
    """Room of a rank's cache."""
    max_live: int
    """`rollout.max_live_sequences`."""
    num_experts: int
    detach: bool = False
    """`elastic.detach`."""
    has_slots: bool = True
    """False: tokens of a cache are counted, as `Scenario` does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guiding:
    """What `rollout.guide.Guidance` says, for all ranks."""

    outlooks: Sequence[Outlook]
    """Of each rank, for the horizons of `frontier.horizons(work.longest)`."""
    costs: CostModel
    objective: str
    max_slowdown: float
    rebalances: bool


def engine_group(
    work: Workload,
    queues: Sequence[Sequence[int]],
    settings: EngineSettings,
    guiding: Guiding | None = None,
) -> Group:
    """Args:
    queues: of each rank, the responses in the order of admission; of a group that may take every size.
    guiding: needed where the policy is guided.
    """
    room = min(settings.kv_tokens, settings.max_live * work.longest)
    rules = GroupRules(
        admit=NearFuture(work.cap),
        max_live=settings.max_live,
        most_joining=NO_BOUND,
        interval=settings.interval,
        rebalances=guiding is not None and guiding.rebalances,
        slots=slot_sizes(work.longest) if settings.has_slots else None,
    )
    elasticity = None
    if settings.policy != "never":
        elasticity = Elasticity(
            _decision(settings, guiding, work, room, max(len(queue) for queue in queues)),
            range(1, len(queues)),
            memory=RankMemory(budget=UNLIMITED, dense=0, expert=1, training=0, kv_token=1, row=1, logits=1),
            num_experts=settings.num_experts,
            size=len(queues),
            longest=work.longest,
            kv_tokens_per_rank=room,
            detach=settings.detach,
        )
    telling = Apart(guiding.outlooks) if guiding else None
    return Group(work, queues, rules, room=room, elasticity=elasticity, telling=telling)


def _decision(
    settings: EngineSettings, guiding: Guiding | None, work: Workload, room: int, most: int
) -> Decision:
    if settings.policy != "guided":
        places = max(1, min(most, settings.max_live))
        return SimpleRule(policy=settings.policy, sequences_per_rank=places, kv_tokens_per_rank=room)
    assert guiding is not None
    rule = GuidedShrink(
        guiding.costs,
        horizons(work.longest),
        Limits(sequences=settings.max_live, kv_tokens=room),
        objective=guiding.objective,
        max_slowdown=guiding.max_slowdown,
    )
    return Guided(rule)
