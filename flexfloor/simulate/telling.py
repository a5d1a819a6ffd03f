"""Who knows what of a group's lengths: its ranks together, or each rank what ended on it.

Each rank tells of its own responses, for where ranks could part it matters whose the long ones are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

from flexfloor.simulate.outlook import Outlook, Told, Unfinished


class Telling(Protocol):
    """What ranks say of how long their responses may go on."""

    def told(self, unfinished: Sequence[Unfinished], ended: Sequence[Sequence[int]]) -> list[Told]:
        """By each active rank.

        Args:
            unfinished: responses of each, and the tokens that they have by now.
            ended: responses that ended on each since they were last asked.
        """
        ...


@dataclass(frozen=True, slots=True)
class Together:
    """All know what ended anywhere in the group; asked once for all."""

    outlook: Outlook

    def told(self, unfinished: Sequence[Unfinished], ended: Sequence[Sequence[int]]) -> list[Told]:
        """By the knowledge of all."""
        return self.outlook.told(unfinished, list(chain(*ended)))


@dataclass(frozen=True, slots=True)
class Apart:
    """Each knows what ended on it, as in the engine; asked one by one."""

    outlooks: Sequence[Outlook]
    """Of each rank."""

    def told(self, unfinished: Sequence[Unfinished], ended: Sequence[Sequence[int]]) -> list[Told]:
        """By its own knowledge."""
        active = zip(self.outlooks, unfinished, ended, strict=False)
        return [told for outlook, own, done in active for told in outlook.told([own], done)]
