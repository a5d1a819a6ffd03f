"""What each way of going on would cost: seconds until the rollout ends against rank-seconds that it occupies.

A rollout's future is the number of responses that are likely to be unfinished after so many more passes.
A course says how many ranks generate in each stretch of it. For every price of a rank-second in seconds of
waiting a cheap course is found by dynamic programming; a row of prices gives the frontier, from the fastest
course to the one that occupies least.

Where ranks cannot hold all that is unfinished at once, the longest go first and the others fill up beside
them as room comes free; what is left after the longest prolongs the end. How much is left behind depends on
the course (`courses`), so that many ranks may be worth keeping until the queues are empty. What a shrink
leaves no room for is computed again.

Ranks that can host all experts may also part (`parting`): a pass is then one rank's, nothing moves any more,
and each rank is occupied until its own end.

Invariants:
- A course never grows.
- Where all that is unfinished fits, no other course is both faster and less occupying, on the same stretches
  and at the same costs. Where it does not, courses are real ones, and the best of those that were followed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flexfloor.schedule.cost import CostModel, Number, PassLoad
from flexfloor.schedule.courses import Course, Courses, Stage
from flexfloor.schedule.objective import NO_EARLY_TRAINING, Training
from flexfloor.schedule.parting import NO_PARTING, Parting

PRICES = (1e-6, *(2.0 ** (power / 2) for power in range(-20, 9)))
"""Seconds of the rollout that a rank-second is worth, times the ranks of the group."""
DOUBT = 2.0
"""How often a shrink's cost is counted: estimates waver, and must not make one small shrink after another."""
MOST_SIZES = 16
"""Sizes that are compared; more are thinned evenly in their logarithm."""
FIRST_STRETCH, STRETCH_GROWTH = 8, 1.4
"""Passes of the first stretch of a curve, and from one to the next."""


def horizons(longest: int) -> np.ndarray:
    """Passes from now at which a curve is known: 0, then ever further apart, up to `longest`. int [H]."""
    found, step = [0], float(FIRST_STRETCH)
    while found[-1] + step < longest:
        found.append(found[-1] + int(step))
        step *= STRETCH_GROWTH
    return np.array([*found, longest])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Curve:
    """How an expert group's unfinished responses are likely to become fewer."""

    horizons: np.ndarray
    """int [H]: passes from now, the first 0, ascending."""
    unfinished: np.ndarray
    """float [H]: expected number after so many passes, on all ranks together; never more than before."""
    stored: float
    """Tokens that caches hold of a response now, in the mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a rank can hold."""

    sequences: int
    """Unfinished responses."""
    kv_tokens: int
    """Tokens of its cache."""


def frontier(
    curve: Curve,
    size: int,
    rungs: Sequence[int],
    costs: CostModel,
    limits: Limits,
    training: Training = NO_EARLY_TRAINING,
    parting: Parting = NO_PARTING,
) -> list[Course]:
    """Courses by ascending price of a rank-second: the first is the fastest.

    Args:
        size: ranks that are active.
        rungs: sizes below it that memory allows.
        training: that ranks which leave could begin with.
        parting: which sizes may part.
    """
    ways = _ways(_thinned(size, rungs), parting)
    sizes, prices = ways.sizes, np.array(PRICES) / size
    useful = np.where(ways.parted, 0, training.useful(sizes))
    courses = Courses(sizes, parted=ways.parted, prices=prices, held=training.held(sizes), useful=useful)
    for stage in _stages(curve, ways, costs, limits):
        courses.go_on(stage)
    return courses.cheapest()


def _thinned(size: int, rungs: Sequence[int]) -> np.ndarray:
    """[R] sizes, descending from the present one."""
    below = sorted((rung for rung in rungs if rung < size), reverse=True)
    if len(below) >= MOST_SIZES:
        wanted = np.geomspace(below[0], below[-1], MOST_SIZES - 1)
        below = sorted({min(below, key=lambda rung: abs(rung - each)) for each in wanted}, reverse=True)
    return np.array([size, *below])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Ways:
    """Sizes of a group, and after them sizes that have parted."""

    sizes: np.ndarray
    """[R]"""
    parted: np.ndarray
    """[R] bool."""
    unevenness: np.ndarray
    """[R] of `Parting`; 1 for groups."""

    def pass_seconds(self, live: np.ndarray, stored: np.ndarray, costs: CostModel) -> np.ndarray:
        """[S, R] seconds of a pass with so many live responses."""
        together = ~self.parted
        found = np.empty_like(live)
        found[:, together] = costs.pass_seconds(_loads(live[:, together], self.sizes[together], stored))
        if self.parted.any():
            alone = costs.alone_seconds(_loads(live[:, self.parted], self.sizes[self.parted], stored))
            found[:, self.parted] = self.unevenness[self.parted] * alone
        return found

    def taken(self, unfinished: float) -> np.ndarray:
        """[R] of the ranks, those that are occupied while so many responses are unfinished."""
        busy = 1.0 - (1.0 - 1.0 / self.sizes) ** unfinished
        return np.where(self.parted, busy / self.unevenness, 1.0)


def _ways(sizes: np.ndarray, parting: Parting) -> _Ways:
    uneven = dict(zip(parting.sizes, parting.unevenness, strict=True))
    parted = np.array([size for size in sizes.tolist() if size in uneven], dtype=sizes.dtype)
    return _Ways(
        sizes=np.concatenate([sizes, parted]),
        parted=np.arange(len(sizes) + len(parted)) >= len(sizes),
        unevenness=np.array([1.0] * len(sizes) + [uneven[size] for size in parted.tolist()]),
    )


def _stages(curve: Curve, ways: _Ways, costs: CostModel, limits: Limits) -> list[Stage]:
    """What each stretch costs in each way."""
    sizes, lengths = ways.sizes, np.diff(curve.horizons)
    asked = (curve.unfinished[:-1] + curve.unfinished[1:]) / 2
    middles = (curve.horizons[:-1] + curve.horizons[1:]) / 2
    stored = curve.stored + _ages(middles, curve, sizes, limits)
    places = _places(sizes, stored, limits)
    live = np.minimum(asked[:, None], places)
    alone = ways.pass_seconds(live, stored, costs)
    full = ways.pass_seconds(places, stored, costs)
    free = places - live
    room = np.cumsum((free * lengths[:, None])[::-1], axis=0)[::-1]
    row = np.divide(full - alone, free, out=np.zeros_like(free), where=free > 0)
    shrinks = DOUBT * _change_seconds(curve, ways, costs, limits)
    return [
        Stage(
            length=float(lengths[each]),
            asked=float(asked[each]),
            taken=ways.taken(float(asked[each])),
            places=places[each],
            room=room[each],
            alone_seconds=alone[each],
            full_seconds=full[each],
            row_seconds=row[each],
            shrink_seconds=shrinks[each],
        )
        for each in range(len(lengths))
    ]


def _ages(passes: np.ndarray, curve: Curve, sizes: np.ndarray, limits: Limits) -> np.ndarray:
    """[S] tokens that live responses have got since now, after so many passes.

    Where all are live, as many as passes were run. Where they take turns, live ones are young: as many as one
    response is likely to get at most.
    """
    if curve.unfinished[0] <= _places(sizes, np.array([curve.stored]), limits)[0, 0]:
        return passes
    return np.minimum(passes, np.trapezoid(curve.unfinished, curve.horizons) / curve.unfinished[0])


def _places(sizes: np.ndarray, stored: np.ndarray, limits: Limits) -> np.ndarray:
    """[S, R] responses that may be live at once, if each of them stores `stored` [S] tokens."""
    return sizes * np.minimum(limits.sequences, limits.kv_tokens / np.maximum(stored, 1.0)[:, None])


def _loads(live: np.ndarray, sizes: np.ndarray, stored: np.ndarray) -> PassLoad:
    """[S, R] passes with so many live responses."""
    rows = np.maximum(1.0, live / sizes)
    return PassLoad(
        ranks=np.broadcast_to(sizes, rows.shape),
        rows=rows,
        joining=np.zeros_like(rows),
        context=rows * stored[:, None],
    )


def _change_seconds(curve: Curve, ways: _Ways, costs: CostModel, limits: Limits) -> np.ndarray:
    """[S, R, R] seconds from one way to another before each stretch; infinite where none leads."""
    num_sizes = int((~ways.parted).sum())
    found = np.full((len(curve.horizons) - 1, len(ways.sizes), len(ways.sizes)), np.inf)
    sizes = ways.sizes[:num_sizes]
    found[:, :num_sizes, :num_sizes] = _shrink_seconds(curve, sizes, costs, limits)
    for way in range(num_sizes, len(ways.sizes)):
        size = int(ways.sizes[way])
        # A larger group shrinks first, at the same decision.
        together = found[:, :num_sizes, sizes.tolist().index(size)]
        found[:, :num_sizes, way] = together + costs.shrink_seconds(size, 1, 0.0)
        found[:, way, way] = 0.0
    return found


def _shrink_seconds(curve: Curve, sizes: np.ndarray, costs: CostModel, limits: Limits) -> np.ndarray:
    """[S, R, R] seconds of a shrink from one size to another before each stretch; infinite to grow."""
    found = np.full((len(curve.horizons) - 1, len(sizes), len(sizes)), np.inf)
    stored = curve.stored + _ages(curve.horizons[:-1], curve, sizes, limits)
    live = np.minimum(curve.unfinished[:-1, None], _places(sizes, stored, limits))
    tokens = live * stored[:, None]
    for before, size in enumerate(sizes.tolist()):
        found[:, before, before] = 0.0
        held = tokens[:, before]
        for after, smaller in enumerate(sizes.tolist()[before + 1 :], start=before + 1):
            kept = np.minimum(held, tokens[:, after])
            moving = costs.shrink_seconds(size, smaller, kept * (1 - smaller / size))
            found[:, before, after] = moving + _recompute_seconds(held - kept, smaller, costs)
    return found


def _recompute_seconds(tokens: np.ndarray, size: int, costs: CostModel) -> np.ndarray:
    """[S] that caches of so many tokens take to be filled again."""

    def pass_seconds(joining: np.ndarray) -> Number:
        nothing = np.zeros_like(joining)
        load = PassLoad(ranks=np.full_like(joining, size), rows=nothing, joining=joining, context=nothing)
        return costs.pass_seconds(load)

    return np.asarray(pass_seconds(tokens / size) - pass_seconds(np.zeros_like(tokens)))
