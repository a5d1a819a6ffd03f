"""Courses of a rollout that are followed at the same time, one for each price of a rank-second and each size.

From stretch to stretch each size keeps the course that is cheapest so far, at each price. A course carries
the tokens that it had no room for. Where courses meet, what is left behind counts as much as its rows will
add to passes with free places, and what finds none as much as passes with full places take for it, all at
that size: a guess, which is right where the course goes on with it.

A size of which the ranks have parted is a size of its own, from which there is no way on.

Shapes: L prices, R sizes.

Invariants:
- Without anything left behind the cheapest course of all is found; otherwise one near it.
- The seconds of a course are those of a rollout that follows it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

NO_WAY = 1e30
"""Seconds of what cannot be; finite, so that none of them is nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """One way of going on."""

    wall_seconds: float
    """From now to the end of the rollout."""
    occupied_seconds: float
    """Rank-seconds of active ranks until then."""
    next_size: int
    """Ranks that generate from now on."""
    useful_seconds: float
    """Rank-seconds until then in which ranks that have left can train."""
    parts: bool = False
    """Whether they part, each with all experts."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stage:
    """What one stretch of passes costs at each size."""

    length: float
    """Passes."""
    asked: float
    """Responses that would be live if all had room."""
    taken: np.ndarray
    """[R] of the ranks that a way has: those that are occupied, in the mean; 1 where all stay to the end."""
    places: np.ndarray
    """[R] responses that may be live."""
    room: np.ndarray
    """[R] tokens that find free places in this stretch and all after it."""
    alone_seconds: np.ndarray
    """[R] of a pass with as many of `asked` as have room."""
    full_seconds: np.ndarray
    """[R] of a pass with all places taken."""
    row_seconds: np.ndarray
    """[R] of each more live response in between."""
    shrink_seconds: np.ndarray
    """[R, R] from a way (row) to another before the stretch; 0 to stay, infinite where there is none."""


class Courses:
    """Follows courses from the largest size on."""

    def __init__(
        self,
        sizes: np.ndarray,
        *,
        parted: np.ndarray,
        prices: np.ndarray,
        held: np.ndarray,
        useful: np.ndarray,
    ):
        """Args:
        sizes: [R] ranks of each way of going on; the first is the present one.
        parted: [R] whether they generate each by itself.
        prices: [L] seconds that a rank-second is worth, ascending.
        held: [R] rank-seconds that a second at a size is priced at.
        useful: [R] ranks that can train while so many generate.
        """
        self.sizes, self.parted, self.prices = sizes, parted, prices[:, None]
        self._held, self._useful = held, useful
        shape = (len(prices), len(sizes))
        self._wall = np.full(shape, np.inf)
        self._wall[:, 0] = 0.0
        self._occupied, self._priced, self._trained, self._behind = (np.zeros(shape) for _ in range(4))
        self._first: np.ndarray | None = None
        """[L, R] index of the size of a course in its first stretch."""
        self._last: Stage | None = None

    def go_on(self, stage: Stage) -> None:
        """One more stretch."""
        self._meet(stage)
        asked = stage.asked + self._behind / stage.length
        live = np.minimum(asked, stage.places)
        self._behind = (asked - live) * stage.length
        more = live - np.minimum(stage.asked, stage.places)
        seconds = stage.alone_seconds + more * stage.row_seconds
        self._add(stage.length * np.minimum(1.0, live) * seconds, stage.taken)
        self._last = stage

    def cheapest(self) -> list[Course]:
        """Of each price the course with the least sum of seconds and priced rank-seconds."""
        stage = self._last
        assert stage is not None and self._first is not None
        self._add(self._behind / stage.places * stage.full_seconds, stage.taken)
        ends = np.argmin(self._wall + self.prices * self._priced, axis=1)
        rows = np.arange(len(ends))
        first = self._first
        columns = (self._wall, self._occupied, self.sizes[first], self._trained, self.parted[first])
        found = (column[rows, ends].tolist() for column in columns)
        return [
            Course(
                wall_seconds=wall, occupied_seconds=held, next_size=size, useful_seconds=useful, parts=parts
            )
            for wall, held, size, useful, parts in zip(*found, strict=True)
        ]

    def _meet(self, stage: Stage) -> None:
        """Let every size go on from the best that it can be reached from."""
        prices, sizes = self.prices, self.sizes
        so_far = self._wall + prices * self._priced
        moving = stage.shrink_seconds * (1.0 + prices[:, :, None] * self._held[:, None])
        left = self._left_behind(stage)
        best = np.argmin(so_far[:, :, None] + moving + left, axis=1)
        each = np.arange(len(prices))[:, None]
        shrink = np.minimum(stage.shrink_seconds[best, np.arange(len(sizes))], NO_WAY)
        self._wall = self._wall[each, best] + shrink
        self._occupied = self._occupied[each, best] + shrink * sizes[best]
        self._priced = self._priced[each, best] + shrink * self._held[best]
        self._trained = self._trained[each, best] + shrink * self._useful[best]
        self._behind = self._behind[each, best]
        reached = np.broadcast_to(np.arange(len(sizes)), best.shape)
        self._first = reached if self._first is None else self._first[each, best]

    def _left_behind(self, stage: Stage) -> np.ndarray:
        """[L, R, R] what tokens that a course has left behind cost from here on at a size."""
        priced = 1.0 + self.prices * self._held
        beside = stage.row_seconds * priced
        alone = stage.full_seconds / stage.places * priced
        fitting = np.minimum(self._behind[:, :, None], stage.room)
        return fitting * beside[:, None, :] + (self._behind[:, :, None] - fitting) * alone[:, None, :]

    def _add(self, seconds: np.ndarray, taken: np.ndarray) -> None:
        self._wall = self._wall + seconds
        self._occupied = self._occupied + seconds * taken * self.sizes
        self._priced = self._priced + seconds * taken * self._held
        self._trained = self._trained + seconds * self._useful
