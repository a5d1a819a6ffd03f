"""What has been done of a mini-batch's update before all ranks met."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from flexfloor.train.metrics import TokenSums
from flexfloor.train.types import Key


def _nothing() -> None:
    """There is nothing to bring home."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EarlyPart:
    """On one rank; by default nothing has been done."""

    trained: frozenset[Key] = frozenset()
    """(uid, response index) of the samples whose gradients some rank has added; the same on every rank."""
    sums: TokenSums = field(default_factory=TokenSums)
    """Of the samples that this rank has trained; the update adds to them."""
    denominator: int = 0
    """Their share of the mini-batch's."""
    has_begun: bool = False
    """Whether this rank's gradients are of this mini-batch already."""
    settle: Callable[[], None] = _nothing
    """Brings gradients to the ranks that keep their parameters; all ranks call it."""
