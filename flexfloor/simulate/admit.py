"""Whether one more response may join a replica: closed forms of what engines do.

`paged` takes whoever fits now but for a small reserve, as vLLM does, and lets the last yield when the cache
is full. `reserved` sets a slot of the greatest length aside for each, as engines with static caches do.
`near_future` is `schedule.admission` with its predictor that looks a little ahead, which asks whether all fit
when each has grown by that much.

Invariants:
- A reserved slot is never taken back: nothing yields.
- What fits for `near_future` fits for `paged` where it looks ahead for more than the reserve.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from flexfloor.schedule.prediction import LOOK_AHEAD

WATERMARK = 0.01
"""Share of the cache that vLLM keeps free when it admits (`watermark` of its block manager)."""


class Admit(Protocol):
    """A rule of admission."""

    def fits(self, live: int, stored: int, joining: int, room: int) -> bool:
        """Whether a response may join.

        Args:
            live: sequences on the replica before it.
            stored: tokens in its cache.
            joining: tokens that the response would store at once.
            room: tokens that the cache may hold.
        """
        ...


@dataclass(frozen=True, slots=True)
class Paged:
    """By present need."""

    def fits(self, live: int, stored: int, joining: int, room: int) -> bool:
        """All but a small reserve may be filled."""
        return stored + joining <= room - int(WATERMARK * room)


@dataclass(frozen=True, slots=True)
class Reserved:
    """By the greatest length."""

    longest: int
    """Tokens of the greatest sequence."""

    def fits(self, live: int, stored: int, joining: int, room: int) -> bool:
        """There is a free slot."""
        return (live + 1) * self.longest <= room


@dataclass(frozen=True, slots=True)
class NearFuture:
    """By the need in a little while."""

    cap: int
    """Tokens that a response may have."""

    def fits(self, live: int, stored: int, joining: int, room: int) -> bool:
        """All would still fit if none ended meanwhile."""
        ahead = max(1, self.cap // LOOK_AHEAD)
        return stored + joining + (live + 1) * (ahead - 1) <= room
