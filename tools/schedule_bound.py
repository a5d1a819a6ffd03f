"""The least seconds that a rollout can take by given costs, whatever is known and decided.

Every token takes a row of a pass, a rank has so many rows at most, and the longest response takes a pass a
token. A pass costs less per row the fuller it is, so that the cheapest mix has full passes of some size and
passes of one row on one rank. Ranks may have parted or not, whichever is cheaper. Prompts, shrinks and
decisions are taken to cost nothing, so that no schedule gets there.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from flexfloor.schedule.cost import CostModel, PassLoad


def least_seconds(
    tokens: int, longest: int, *, ranks: int, rows: int, context: float, costs: CostModel
) -> float:
    """The cheapest mix of passes with as many rows as there are tokens, and at least `longest` of them.

    Args:
        rows: that a rank has at most in a pass.
        context: tokens that a row attends to, in the mean.
    """
    kinds = [(1, 1), *((size, rows) for size in range(1, ranks + 1))]
    seconds = np.array([_seconds(size, each, context, costs) for size, each in kinds])
    made = np.array([size * each for size, each in kinds], dtype=float)
    wanted = np.array([tokens, longest], dtype=float)
    found = [float(max(tokens / made[kind], longest) * seconds[kind]) for kind in range(len(kinds))]
    for pair in map(list, combinations(range(len(kinds)), 2)):
        mix = np.stack([made[pair], np.ones(2)])
        if abs(np.linalg.det(mix)) < 1e-9:
            continue
        passes = np.linalg.solve(mix, wanted)
        if passes.min() >= 0:
            found.append(float(passes @ seconds[pair]))
    return min(found)


def _seconds(size: int, rows: int, context: float, costs: CostModel) -> float:
    load = PassLoad(ranks=size, rows=rows, joining=0, context=rows * context)
    return min(float(costs.pass_seconds(load)), float(costs.alone_seconds(load)))
