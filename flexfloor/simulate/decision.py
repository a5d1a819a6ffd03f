"""When a group shrinks: the decisions of `schedule`, and when they are not worth asking for.

Invariants:
- `may_change` is false only where the decision would say that all stay, or where responses would have to
  take turns after a shrink.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from flexfloor.schedule.guided import GuidedShrink
from flexfloor.schedule.shrink import Standing, Step, next_size


class Decision(Protocol):
    """Whether a group shrinks or parts, from what its ranks say."""

    def may_change(self, standings: Sequence[Standing], rungs: Sequence[int], *, parts: bool) -> bool:
        """Whether one of `rungs` could be taken, or ranks could part.

        Args:
            parts: whether memory allows that to all that are active.
        """
        ...

    def decide(
        self, standings: Sequence[Standing], rungs: Sequence[int], *, passes: int, may_part: Sequence[int]
    ) -> Step:
        """Ranks to go on with: one of `rungs`, or as many as are active, and perhaps each by itself.

        Args:
            passes: run since it was last asked.
            may_part: sizes of which memory allows that.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SimpleRule:
    """`schedule.shrink.next_size` with one of its policies; ranks part where they may and none leaves."""

    policy: str
    sequences_per_rank: int
    kv_tokens_per_rank: int

    def may_change(self, standings: Sequence[Standing], rungs: Sequence[int], *, parts: bool) -> bool:
        """Whether it would, did every rung fit."""
        return parts or self._size(standings, rungs) < len(standings)

    def decide(
        self, standings: Sequence[Standing], rungs: Sequence[int], *, passes: int, may_part: Sequence[int]
    ) -> Step:
        """What to do now."""
        size = self._size(standings, rungs)
        return Step(size=size, parts=size == len(standings) and size in may_part)

    def _size(self, standings: Sequence[Standing], rungs: Sequence[int]) -> int:
        return next_size(
            standings,
            rungs,
            policy=self.policy,
            sequences_per_rank=self.sequences_per_rank,
            kv_tokens_per_rank=self.kv_tokens_per_rank,
        )


@dataclass(frozen=True, slots=True)
class Guided:
    """`schedule.guided`."""

    rule: GuidedShrink

    def may_change(self, standings: Sequence[Standing], rungs: Sequence[int], *, parts: bool) -> bool:
        """Always: what it has spent so far counts, too."""
        return True

    def decide(
        self, standings: Sequence[Standing], rungs: Sequence[int], *, passes: int, may_part: Sequence[int]
    ) -> Step:
        """What to do now."""
        return self.rule.decide(standings, rungs, passes=passes, may_part=may_part)
