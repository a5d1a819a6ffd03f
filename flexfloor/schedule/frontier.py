"""What each way of going on would cost: seconds until the rollout ends against rank-seconds that it occupies.

A rollout's future is the number of responses that are likely to be unfinished after so many more passes.
A course says how many ranks generate in each stretch of it. For every price of a rank-second in seconds of
waiting there is a cheapest course, found by dynamic programming from the end; a row of prices gives the
frontier, from the fastest course to the one that occupies least.

Where ranks cannot hold all that is unfinished at once, the longest go first and the others fill up beside
them as room comes free; what is left after the longest prolongs the end. At each size this is reckoned as if
the group had it from now on. What a shrink leaves no room for is computed again.

Invariants:
- A course never grows.
- No other course is both faster and less occupying, on the same stretches and at the same costs.
- A lower price of rank-seconds never gives a slower course.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flexfloor.schedule.cost import CostModel, Number, PassLoad

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """One way of going on."""

    wall_seconds: float
    """From now to the end of the rollout."""
    occupied_seconds: float
    """Rank-seconds of active ranks until then."""
    next_size: int
    """Ranks that generate from now on."""


def frontier(curve: Curve, size: int, rungs: Sequence[int], costs: CostModel, limits: Limits) -> list[Course]:
    """Courses by ascending price of a rank-second: the first is the fastest.

    Args:
        size: ranks that are active.
        rungs: sizes below it that memory allows.
    """
    sizes = _thinned(size, rungs)
    passing = _pass_seconds(curve, sizes, costs, limits)
    return _cheapest(sizes, passing, DOUBT * _shrink_seconds(curve, sizes, costs, limits))


def _thinned(size: int, rungs: Sequence[int]) -> np.ndarray:
    """[R] sizes, descending from the present one."""
    below = sorted((rung for rung in rungs if rung < size), reverse=True)
    if len(below) >= MOST_SIZES:
        wanted = np.geomspace(below[0], below[-1], MOST_SIZES - 1)
        below = sorted({min(below, key=lambda rung: abs(rung - each)) for each in wanted}, reverse=True)
    return np.array([size, *below])


def _pass_seconds(curve: Curve, sizes: np.ndarray, costs: CostModel, limits: Limits) -> np.ndarray:
    """[S, R] seconds of each stretch at each size."""
    stored = curve.stored + ((curve.horizons[:-1] + curve.horizons[1:]) / 2)[:, None]
    places = sizes * np.minimum(limits.sequences, limits.kv_tokens / stored)
    live, passes = _live(curve, places)
    rows = np.maximum(1.0, live / sizes)
    load = PassLoad(
        ranks=np.broadcast_to(sizes, rows.shape),
        rows=rows,
        joining=np.zeros_like(rows),
        context=rows * stored,
    )
    return passes * costs.pass_seconds(load)


def _live(curve: Curve, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[S, R] responses that are live in a pass of each stretch, and passes that are likely to be run.

    Args:
        places: [S, R] for live responses.
    """
    lengths = np.diff(curve.horizons)
    live, passes = np.empty_like(places), np.empty_like(places)
    behind = np.zeros(places.shape[1])
    for stretch, length in enumerate(lengths):
        middle = (curve.unfinished[stretch] + curve.unfinished[stretch + 1]) / 2
        wanted = middle + behind / length
        live[stretch] = np.minimum(wanted, places[stretch])
        behind = (wanted - live[stretch]) * length
        passes[stretch] = length * np.minimum(1.0, live[stretch])
    passes[-1] += behind / places[-1]
    return live, passes


def _shrink_seconds(curve: Curve, sizes: np.ndarray, costs: CostModel, limits: Limits) -> np.ndarray:
    """[S, R, R] seconds of a shrink from one size to another before each stretch; infinite to grow."""
    found = np.full((len(curve.horizons) - 1, len(sizes), len(sizes)), np.inf)
    tokens = curve.unfinished[:-1] * (curve.stored + curve.horizons[:-1])
    for before, size in enumerate(sizes.tolist()):
        found[:, before, before] = 0.0
        held = np.minimum(tokens, size * limits.kv_tokens)
        for after, smaller in enumerate(sizes.tolist()[before + 1 :], start=before + 1):
            kept = np.minimum(held, smaller * limits.kv_tokens)
            moves = [costs.shrink_seconds(size, smaller, each) for each in kept * (1 - smaller / size)]
            found[:, before, after] = np.array(moves) + _recompute_seconds(held - kept, smaller, costs)
    return found


def _recompute_seconds(tokens: np.ndarray, size: int, costs: CostModel) -> np.ndarray:
    """[S] that caches of so many tokens take to be filled again."""

    def pass_seconds(joining: np.ndarray) -> Number:
        nothing = np.zeros_like(joining)
        load = PassLoad(ranks=np.full_like(joining, size), rows=nothing, joining=joining, context=nothing)
        return costs.pass_seconds(load)

    return np.asarray(pass_seconds(tokens / size) - pass_seconds(np.zeros_like(tokens)))


def _cheapest(sizes: np.ndarray, passing: np.ndarray, shrinking: np.ndarray) -> list[Course]:
    """Backwards over the stretches, for all prices at once; shapes [prices L, sizes R, sizes R]."""
    prices = np.array(PRICES)[:, None, None] / sizes[0]
    wall = np.zeros((len(PRICES), len(sizes)))
    occupied = np.zeros_like(wall)
    for seconds, shrink in zip(passing[::-1], shrinking[::-1], strict=True):
        walls = shrink + seconds[None, None, :] + wall[:, None, :]
        held = shrink * sizes[:, None] + (seconds * sizes)[None, None, :] + occupied[:, None, :]
        best = np.argmin(walls + prices * held, axis=2)[:, :, None]
        wall, occupied = (np.take_along_axis(each, best, axis=2)[:, :, 0] for each in (walls, held))
    return [
        Course(wall_seconds=float(seconds), occupied_seconds=float(held), next_size=int(sizes[first]))
        for seconds, held, first in zip(wall[:, 0], occupied[:, 0], best[:, 0, 0], strict=True)
    ]
