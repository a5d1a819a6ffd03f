"""Who knows what of a group's lengths: its ranks together, or each rank what ended on it.

Ranks only sum up what all of them tell, so that it does not matter which one tells what all know.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

from flexfloor.simulate.outlook import Outlook, Unfinished


class Telling(Protocol):
    """What ranks say of how long their responses may go on."""

    def told(self, unfinished: Sequence[Unfinished], ended: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
        """`Standing.alive` of each active rank.

        Args:
            unfinished: responses of each active rank, and the tokens that they have by now.
            ended: responses that ended on each since they were last asked.
        """
        ...


@dataclass(frozen=True, slots=True)
class Together:
    """All know what ended anywhere in the group; asked once for all."""

    outlook: Outlook

    def told(self, unfinished: Sequence[Unfinished], ended: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
        """By the first rank."""
        alive = self.outlook.told(list(chain(*unfinished)), list(chain(*ended)))
        nothing = (0,) * len(alive)
        return [nothing if rank else alive for rank in range(len(unfinished))]


@dataclass(frozen=True, slots=True)
class Apart:
    """Each knows what ended on it, as in the engine; asked one by one."""

    outlooks: Sequence[Outlook]
    """Of each rank."""

    def told(self, unfinished: Sequence[Unfinished], ended: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
        """By each rank."""
        active = zip(self.outlooks, unfinished, ended, strict=False)
        return [outlook.told(own, done) for outlook, own, done in active]
