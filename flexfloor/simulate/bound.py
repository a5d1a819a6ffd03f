"""What no schedule could beat on modelled hardware, whatever it knew: a linear programme over passes.

A pass of so many rows gives each of the k longest responses a token at most, so that passes with R rows have
to satisfy, for every k,

    sum over passes of min(R, k)  >=  tokens of the k longest responses.

Each pass takes what the roofline says of as many rows on each rank as there are in the mean, on the cheapest
number of ranks that has the memory, in a group or, where one rank holds all experts, on ranks that parted.
Tokens in caches are read once for each token that is generated; what they add to a pass is counted where it
is more than the launch floor leaves free. Prompts, shrinks, moves, exchanges and waiting are taken to cost
nothing, and any response may be anywhere at any time, so that no schedule gets there.

By duality every set of prices gives a valid bound; the best on a grid of two of them is taken.

Invariants:
- No simulated schedule occupies less in its own seconds, or takes less than the least of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import linprog

from flexfloor.elastic.floor import Need
from flexfloor.schedule.cost import PassLoad
from flexfloor.simulate.lengths import StepLengths
from flexfloor.simulate.roofline import GroupLoad
from flexfloor.simulate.scenario import Scenario

EVERY, GROWTH = 24, 1.06
"""Numbers of rows that are told apart: each up to the first, then in steps of this factor."""
WALL_PRICES = (0.0, *(2.0 ** (power / 2) for power in range(-8, 13)))
"""Of a second of the rollout, in rank-seconds."""
CONTEXT_PRICES = (0.0, 0.5, 0.75, 1.0)
"""Of a token in a cache, over what reading it takes at least."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Kinds:
    """Passes by rows: R numbers of rows, and S ways of sharing them."""

    rows: np.ndarray
    """[R] the most rows of each kind."""
    seconds: np.ndarray
    """[S, R] that a pass takes at least, beside reading its cache; infinite where it has no room."""
    floor: float
    """Least seconds of any pass."""
    occupied: np.ndarray
    """[S] ranks."""
    wall: np.ndarray
    """[S] share of a pass by which the rollout is longer: ranks that have parted run side by side."""
    longest: int
    """Tokens of the greatest sequence."""
    token_seconds: float
    """Of reading a cached token on one rank."""

    def weights(self, rank_price: float, wall_price: float, token_price: float) -> np.ndarray:
        """[R] least price of a pass of each kind, less the worth of the context that it reads for nothing."""
        price = rank_price * self.occupied + wall_price * self.wall
        free = np.maximum(0.0, self.floor - self.seconds) * self.occupied[:, None] / self.token_seconds
        free = np.minimum(free, self.longest * self.rows)
        whole = price[:, None] * np.maximum(self.seconds, self.floor) - token_price * free
        return np.maximum(0.0, whole).min(axis=0)

    def token_price(self, rank_price: float, wall_price: float) -> float:
        """The most at which no pass reads for less than a cached token is worth."""
        return float((rank_price + wall_price * self.wall / self.occupied).min() * self.token_seconds)


def kinds_of(scenario: Scenario, num_responses: int) -> Kinds:
    """All passes that the scenario's groups could run, and its ranks apart."""
    sizes = [size for size in (*scenario.open_rungs(), scenario.group_size) if _has_memory(scenario, size)]
    most = min(num_responses, scenario.max_live * scenario.group_size)
    first = np.unique(_steps(most))
    rows = np.append(first[1:] - 1, most)
    seconds = [_seconds(scenario, size, first) for size in sizes]
    occupied, wall = [scenario.tp * size for size in sizes], [1.0] * len(sizes)
    if scenario.tp == 1 and _has_memory(scenario, 1):
        seconds.append(_seconds(scenario, 1, first))
        occupied.append(1)
        wall.append(1.0 / scenario.group_size)
    return Kinds(
        rows=rows,
        seconds=np.stack(seconds),
        floor=scenario.cost.floor_seconds,
        occupied=np.array(occupied, dtype=float),
        wall=np.array(wall),
        longest=scenario.longest,
        token_seconds=_token_seconds(scenario),
    )


def least_occupied(scenario: Scenario, steps: Sequence[StepLengths], wall_seconds: float) -> float:
    """Rank-seconds that generating `steps` takes at least, in so many seconds altogether."""
    kinds = [kinds_of(scenario, len(step.tokens)) for step in steps]
    groups = scenario.num_gpus // scenario.ep
    found = 0.0
    for wall_price in WALL_PRICES:
        most = min(each.token_price(1.0, wall_price) for each in kinds)
        for share in CONTEXT_PRICES:
            price = (1.0, wall_price, share * most)
            worth = sum(_worth(scenario, *each, price) for each in zip(kinds, steps, strict=True))
            found = max(found, worth - wall_price * groups * wall_seconds)
    return found


def least_wall(scenario: Scenario, steps: Sequence[StepLengths]) -> float:
    """Seconds that generating `steps` takes at least."""
    groups, found = scenario.num_gpus // scenario.ep, 0.0
    for step in steps:
        kinds = kinds_of(scenario, len(step.tokens))
        most = kinds.token_price(0.0, 1.0)
        worth = [_worth(scenario, kinds, step, (0.0, 1.0, share * most)) for share in CONTEXT_PRICES]
        least = float(np.maximum(kinds.seconds, kinds.floor).min())
        found += max(max(worth) / groups, least * int(step.tokens.max()))
    return found


def _worth(scenario: Scenario, kinds: Kinds, step: StepLengths, price: tuple[float, float, float]) -> float:
    """Of a step's tokens and what they read at the best prices of rows that no pass undercuts."""
    tokens = np.sort(step.tokens)[::-1]
    counts = np.unique(np.minimum(_steps(len(tokens)), len(tokens)))
    served = np.minimum(kinds.rows[:, None], counts)
    context = float((tokens * (scenario.prompt_tokens + (tokens - 1) / 2)).sum())
    rows = greatest(np.cumsum(tokens)[counts - 1].astype(float), served, kinds.weights(*price))
    return rows + price[2] * context


def greatest(worth: np.ndarray, taken: np.ndarray, limits: np.ndarray) -> float:
    """The most that `worth` [V] x prices can be, with no price negative and `taken` [N, V] x prices at most
    `limits` [N]."""
    found = linprog(-worth, A_ub=taken, b_ub=limits)
    assert found.success, found.message
    return float(-found.fun)


def _steps(most: int) -> np.ndarray:
    """Whole numbers from 1 to at most `most`, ever further apart."""
    found = list(range(1, min(EVERY, most) + 1))
    while found[-1] * GROWTH < most:
        found.append(int(np.ceil(found[-1] * GROWTH)))
    return np.array(found)


def _has_memory(scenario: Scenario, size: int) -> bool:
    """Whether so many replicas hold all experts beside one sequence each."""
    need = Need(sequences=1, kv_tokens=scenario.longest, rows=1)
    return scenario.memory.hostable(need) * size * scenario.tp >= scenario.model.num_experts


def _seconds(scenario: Scenario, size: int, rows: np.ndarray) -> np.ndarray:
    """[R] without the launch floor and without context; infinite for more rows than may be live."""
    each = np.maximum(1.0, rows / size)
    load = GroupLoad(
        ranks=np.full_like(each, size), rows=each, joining=0 * each, context=0 * each, total=rows
    )
    seconds = np.asarray(replace(scenario, floor_seconds=0.0).cost.pass_seconds(load))
    return np.where(each > scenario.max_live, np.inf, seconds)


def _token_seconds(scenario: Scenario) -> float:
    load = {"ranks": 1.0, "rows": 1.0, "joining": 0.0}
    cost = replace(scenario, floor_seconds=0.0).cost
    none, one = (cost.pass_seconds(PassLoad(**load, context=tokens)) for tokens in (0.0, 1e9))
    return float(one - none) / 1e9
