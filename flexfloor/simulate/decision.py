"""When a group shrinks: the decisions of `schedule`, and when they are not worth asking for.

Invariants:
- `may_shrink` is false only where the decision would say that all stay, or where responses would have to
  take turns after a shrink.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from flexfloor.schedule.guided import GuidedShrink
from flexfloor.schedule.shrink import Standing, next_size


class Decision(Protocol):
    """Whether a group shrinks, from what its ranks say."""

    def may_shrink(self, standings: Sequence[Standing], rungs: Sequence[int]) -> bool:
        """Whether one of `rungs`, not none, could be taken."""
        ...

    def next_size(self, standings: Sequence[Standing], rungs: Sequence[int], *, passes: int) -> int:
        """Ranks to go on with: one of `rungs`, or as many as are active.

        Args:
            passes: run since it was last asked.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SimpleRule:
    """`schedule.shrink.next_size` with one of its policies."""

    policy: str
    sequences_per_rank: int
    kv_tokens_per_rank: int

    def may_shrink(self, standings: Sequence[Standing], rungs: Sequence[int]) -> bool:
        """Whether it would, did every rung fit."""
        return self.next_size(standings, rungs, passes=0) < len(standings)

    def next_size(self, standings: Sequence[Standing], rungs: Sequence[int], *, passes: int) -> int:
        """Ranks to go on with."""
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

    def may_shrink(self, standings: Sequence[Standing], rungs: Sequence[int]) -> bool:
        """Always: what it has spent so far counts, too."""
        return True

    def next_size(self, standings: Sequence[Standing], rungs: Sequence[int], *, passes: int) -> int:
        """Ranks to go on with."""
        return self.rule.next_size(standings, rungs, passes=passes)
