"""What a rollout tells those who wait for its released ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Releases(Protocol):
    """Called on the active ranks of an expert group, after the same passes on all of them."""

    def at_interval(self) -> None:
        """As many passes have been run as lie between two decisions; it must not wait for others here."""

    def guests_wanted(self, rung: int, seconds_left: float | None) -> int:
        """Experts that each released rank may take as guests, if the stayers' are wanted now; else 0.

        What the group's first rank says, holds.

        Args:
            rung: ranks that go on.
            seconds_left: until the rollout is likely to end; None where nobody can tell.
        """

    def released(self, rung: int, expert_load: Sequence[int], guests: int) -> None:
        """The group has gone to `rung` ranks; on those that stay only, and without waiting for others.

        Args:
            expert_load: rows of the whole group that chose each expert.
            guests: as the first rank wanted them.
        """
