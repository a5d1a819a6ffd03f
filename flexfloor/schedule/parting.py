"""Ranks that part, each to generate by itself what it has: how far apart their ends would be.

Nothing evens out what is left once ranks have parted, so the last of them ends later than a mean one would:
by what is known of their shares (`unevenness`), and by what nobody can know (`luck`).

Source: G. Blom, "Statistical Estimates and Transformed Beta-Variables", 1958, for the greatest of n normal
numbers.

Invariants:
- The unevenness is at least 1, and 1 where all ranks expect the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from flexfloor.schedule.cost import CostModel, PassLoad

if TYPE_CHECKING:
    from flexfloor.schedule.frontier import Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Parting:
    """Which groups may part, and what is known of how they would."""

    sizes: tuple[int, ...]
    """Of groups whose ranks have the memory for all experts."""
    unevenness: tuple[float, ...]
    """Of each: seconds to the end of the last rank, over those of a rank with a mean share."""


NO_PARTING = Parting(sizes=(), unevenness=())


def luck(size: int, waves: float) -> float:
    """What the last of `size` ranks is likely to have more than a mean one, relative, for each unit of
    deviation of all that is left over all that is left.

    A rank's deviation is that of all over the root of `size`, and its share a `size`-th. Where all responses
    are live at once the last one decides the end, of a group as of ranks that have parted.

    Args:
        size: at least 2.
        waves: unfinished responses over those that may be live.
    """
    greatest = NormalDist().inv_cdf((size - 0.375) / (size + 0.25))
    return min(max(waves - 1.0, 0.0), 1.0) * size**0.5 * greatest


def unevenness(
    unfinished: np.ndarray, stored: np.ndarray, horizons: np.ndarray, costs: CostModel, limits: Limits
) -> float:
    """Of the active ranks, if they parted now.

    Args:
        unfinished: float [R, H] of each rank and horizon: responses that are likely to be unfinished.
        stored: float [R] tokens that a rank's cache holds of a response now, in the mean.
        horizons: int [H] passes from now, the first 0.
        limits: of a rank.
    """
    ranks = len(unfinished)
    every = np.concatenate([unfinished, unfinished.mean(axis=0, keepdims=True)])
    # Passes of a mean share go on while anything is unfinished on one of the ranks.
    sharing = np.append(np.ones(ranks), ranks)
    seconds = _seconds(every, sharing, np.append(stored, stored.mean()), horizons, costs, limits, ranks)
    return max(1.0, float(seconds[:-1].max() / max(seconds[-1], 1e-12)))


def _seconds(
    unfinished: np.ndarray,
    sharing: np.ndarray,
    stored: np.ndarray,
    horizons: np.ndarray,
    costs: CostModel,
    limits: Limits,
    ranks: int,
) -> np.ndarray:
    """[R] until each has ended: what finds no room prolongs it."""
    asked = (unfinished[:, :-1] + unfinished[:, 1:]) / 2
    lengths, middles = np.diff(horizons), (horizons[:-1] + horizons[1:]) / 2
    behind = found = np.zeros(len(unfinished))
    for stretch, length in enumerate(lengths.tolist()):
        context = stored + middles[stretch]
        places = np.minimum(limits.sequences, limits.kv_tokens / np.maximum(context, 1.0))
        wanted = asked[:, stretch] + behind / length
        live = np.minimum(wanted, places)
        behind = (wanted - live) * length
        found = found + length * np.minimum(1.0, live * sharing) * _pass(live, context, costs, ranks)
    return found + behind / places * _pass(places, context, costs, ranks)


def _pass(live: np.ndarray, context: np.ndarray, costs: CostModel, ranks: int) -> np.ndarray:
    rows = np.maximum(1.0, live)
    load = PassLoad(
        ranks=np.full_like(rows, ranks), rows=rows, joining=np.zeros_like(rows), context=rows * context
    )
    return np.asarray(costs.alone_seconds(load))
