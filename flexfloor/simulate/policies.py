"""The schedules that are compared, each as the parts that it is made of.

Invariants:
- Two schedules that differ in one part show what that part gives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class Known(StrEnum):
    """What a schedule knows of lengths before they are generated."""

    NOTHING = "nothing"
    HISTORY = "history"
    """Lengths of the same prompts in earlier epochs."""
    LENGTHS = "lengths"
    """The very lengths: an oracle."""


class Dealt(StrEnum):
    """Which replica gets which responses."""

    IN_ORDER = "in order"
    """Whole prompts, in the order of the data."""
    LONGEST_FIRST = "longest first"
    """As before, and each replica begins with what is likely to be longest."""
    PLANNED = "planned"
    """The way of dealing that the planner's forecast finds quickest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A schedule."""

    name: str
    meaning: str
    """In a few words, for tables."""
    dealt: Dealt = Dealt.IN_ORDER
    known: Known = Known.NOTHING
    admission: str = "paged"
    """`paged`, `reserved` or `near_future` (`simulate.admit`)."""
    shrink: str = "never"
    """`never`; `idle` or `greedy` as `schedule.shrink` has them; `guided` by cost, as `schedule.guided`."""
    objective: str = "throughput"
    """Of a guided shrink (`schedule.objective`)."""
    max_slowdown: float = 0.0
    """Share of a rollout's seconds that `occupancy` may give for rank-seconds."""
    rebalances: bool = False
    """Replicas without a queue take from the others'."""


def _fixed() -> list[Policy]:
    return [
        Policy(name="paged", meaning="fixed group, data order, vLLM-like admission with preemption"),
        Policy(
            name="reserved",
            meaning="fixed group, data order, slots of the greatest length",
            admission="reserved",
        ),
        Policy(
            name="longest_first",
            meaning="fixed group, data order, each replica its longest expected first",
            dealt=Dealt.LONGEST_FIRST,
            known=Known.HISTORY,
        ),
        Policy(
            name="planned",
            meaning="fixed group, queues and admission of flexfloor",
            dealt=Dealt.PLANNED,
            known=Known.HISTORY,
            admission="near_future",
            rebalances=True,
        ),
    ]


def _elastic() -> list[Policy]:
    return [
        Policy(
            name="greedy",
            meaning="group shrinks by the simple rule, no history",
            admission="near_future",
            shrink="greedy",
        ),
        Policy(
            name="unmoved",
            meaning="as planned, and ranks leave once they and those above them have nothing left",
            dealt=Dealt.PLANNED,
            known=Known.HISTORY,
            admission="near_future",
            shrink="idle",
            rebalances=True,
        ),
        Policy(
            name="flexfloor",
            meaning="history, plan, shrinks by cost, moves",
            dealt=Dealt.PLANNED,
            known=Known.HISTORY,
            admission="near_future",
            shrink="guided",
            rebalances=True,
        ),
        Policy(
            name="oracle",
            meaning="as flexfloor, lengths known",
            dealt=Dealt.PLANNED,
            known=Known.LENGTHS,
            admission="near_future",
            shrink="guided",
            rebalances=True,
        ),
    ]


POLICIES: Mapping[str, Policy] = MappingProxyType({each.name: each for each in (*_fixed(), *_elastic())})
"""By the name that `simulate.policies` takes."""
