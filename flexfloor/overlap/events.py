"""What is written into the logs of a step: what became of the rollout, and orders to a lease."""

from __future__ import annotations

from dataclasses import dataclass

from flexfloor.elastic.placement import Placement
from flexfloor.train.types import Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """A response that has ended and has its score."""

    uid: str
    response_index: int
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Posted:
    """Responses that a rank had scored when it wrote."""

    responses: tuple[Scored, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shrunk:
    """An expert group that became smaller."""

    ep_index: int
    """Which expert group."""
    rung: int
    """Replicas that go on generating."""
    opened: Placement | None
    """Who hosts which expert in a lease of the others, if there is one from now on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """An expert group that has generated everything."""

    ep_index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """Order: the positions from `rung` on become a lease."""

    rung: int
    placement: Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class Grow:
    """Order: the positions from `rung` on go on as one lease."""

    rung: int
    placement: Placement


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Compare:
    """Order: find what the training model and the reference make of these samples."""

    samples: tuple[Sample, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Train:
    """Order: add the gradients of these samples, one micro-batch on each replica."""

    samples: tuple[Sample, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Over:
    """Order: generation has ended, the lease too."""


RolloutEvent = Posted | Shrunk | Ended
Order = Open | Grow | Compare | Train | Over
