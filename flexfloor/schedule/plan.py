"""Which replica generates which responses, in which order.

Longest first: what is likely to be long starts early, so that little is left when the last one ends. Ways to
deal are compared by the forecast: whole groups, so that siblings share their prompt's prefill, or response by
response, which spreads more evenly; and the order of the data. The first of those that take equally long.

Invariants:
- Every response is in exactly one queue, once.
- Equal input gives equal queues: on every rank.
- No plan that is taken has a longer forecast than the order of the data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace

import numpy as np

from flexfloor.schedule.cost import CostModel
from flexfloor.schedule.forecast import Replicas, Wanted, forecast_seconds
from flexfloor.schedule.static import deal_in_order

IN_ORDER = "in order"
DEALS = ("whole groups", "one by one", IN_ORDER)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plan:
    """Queues of all replicas."""

    deal: str
    """How they were dealt, one of `DEALS`."""
    queues: tuple[np.ndarray, ...]
    """Of each replica: the numbers of its responses, in the order in which they start."""
    seconds: float
    """That the rollout is forecast to take with a fixed group."""


def plan_queues(
    wanted: Wanted, replicas: Replicas, costs: CostModel, *, deals: Sequence[str] = DEALS
) -> Plan:
    """The quickest of some ways to deal, by the forecast; the first of equals.

    Args:
        deals: that are compared, of `DEALS`.
    """
    plans = []
    for deal in deals:
        queues = _deal(deal, wanted, replicas.count)
        seconds = forecast_seconds(queues, wanted, replicas, costs)
        plans.append(Plan(deal=deal, queues=tuple(queues), seconds=seconds))
    return min(plans, key=lambda plan: plan.seconds)


def _deal(deal: str, wanted: Wanted, count: int) -> list[np.ndarray]:
    num_prompts, n = wanted.lengths.shape
    if deal == IN_ORDER:
        return [np.arange(each.start * n, each.stop * n) for each in deal_in_order(num_prompts, count)]
    longest_first = np.argsort(-wanted.lengths.mean(axis=1), kind="stable")
    if deal == "whole groups":
        owner = _to_the_least_loaded(wanted.lengths.sum(axis=1)[longest_first], count)
        siblings = longest_first[:, None] * n + np.arange(n)
        return [siblings[owner == replica].reshape(-1) for replica in range(count)]
    assert deal == "one by one", deal
    numbers = (longest_first[:, None] * n + np.arange(n)).reshape(-1)
    owner = _to_the_least_loaded(np.repeat(wanted.lengths.mean(axis=1)[longest_first], n), count)
    return [numbers[owner == replica] for replica in range(count)]


def _to_the_least_loaded(work: np.ndarray, count: int) -> np.ndarray:
    """int [len(work)]: who takes each piece, one after the other, always whoever has least so far."""
    loads = [(0.0, replica) for replica in range(count)]
    heapify(loads)
    owner = np.empty(len(work), dtype=int)
    for index, piece in enumerate(work.tolist()):
        load, replica = loads[0]
        owner[index] = replica
        heapreplace(loads, (load + piece, replica))
    return owner
