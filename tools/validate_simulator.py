"""The simulator against the engine: predicted and measured seconds of the same rollouts on CPU ranks.

Forced long-tailed lengths in several waves of a tight cache. Each policy first generates one epoch, from
which costs of passes, shrinks and exchanges are learned; from then on they stay as they are. The simulator
then predicts another epoch, and the engine generates it, all policies taking turns; medians over the rounds
are compared. Passes and rank-steps are no matter of time and must agree exactly. What it does not show:
accelerators, whose passes `roofline` models; the costs here are fitted, as a run's own are.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from rich.console import Console
from rich.table import Table
from schedule_measured import INTERVAL, SHRINKS, Bench, as_run, epoch
from simulated_rollout import Predicted, predict

from flexfloor.launch import run_ranks
from flexfloor.rollout.types import PassProgress

WARM_UP, LEARNED, PREDICTED = 3, 2, 1
"""Epochs."""
POLICIES = list(SHRINKS)
"""Ranks of guided groups part where that pays, but for one policy that forbids it."""
WITHOUT_COSTS = ("static", "longest first", "simple rule")
"""Policies whose decisions no cost changes: what they did while costs were learned can be simulated. How much
longer it took than passes at their medians is learned too, as one factor: what held ranks up now and then."""
HEADINGS = ("ranks", "policy", "passes", "rank-steps", "wall s", "error", "occupied s", "error")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One rollout."""

    wall_s: float
    occupied_s: float
    passes: int
    rank_steps: int
    exchange_s: float
    """What a pass with an exchange takes more than its neighbours; 0 where there was none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One policy on so many ranks."""

    measured: Measured
    """Medians over the rounds."""
    predicted: Predicted
    counted: Predicted
    """With a cache of which tokens are counted."""

    def errors(self, predicted: Predicted) -> list[float]:
        """Relative, of wall time and occupied time."""
        return [
            abs(predicted.wall_s / self.measured.wall_s - 1),
            abs(predicted.occupied_s / self.measured.occupied_s - 1),
        ]


def main() -> None:
    """Measure, print the table and, last, one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--live-tokens", type=int, default=800, help="room of a rank's cache")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    options = parser.parse_args()
    table = Table(*HEADINGS, title="real/simulated")
    found: list[Comparison] = []
    for ranks in options.ranks:
        load = (options.prompts, options.live_tokens)
        compared = run_ranks(compare, ranks, *load, options.rounds, threads_per_rank=1)[0]
        for policy, each in compared.items():
            table.add_row(str(ranks), policy, *_cells(each))
        found += compared.values()
    Console(width=100).print(table)
    sys.stdout.write(json.dumps(figures(found)) + "\n")


def figures(found: list[Comparison]) -> dict[str, object]:
    """The last line."""
    errors = [error for each in found for error in each.errors(each.predicted)]
    counted = [error for each in found for error in each.errors(each.counted)]
    return {
        "bench": "simulator",
        "median_error": round(statistics.median(errors), 4),
        "largest_error": round(max(errors), 4),
        "median_error_counting_tokens": round(statistics.median(counted), 4),
        "rank_steps_agree": all(each.measured.rank_steps == each.predicted.rank_steps for each in found),
    }


def compare(num_prompts: int, live_tokens: int, rounds: int) -> dict[str, Comparison]:
    """By policy; all ranks call it, and rank 0's answer counts."""
    bench = Bench(num_prompts, live_tokens, may_part=True)
    learned, slowness = learn(bench)
    forced = epoch(PREDICTED, num_prompts)

    def told(policy: str, has_slots: bool) -> Predicted:
        found = predict(bench, policy, forced, learned[policy].exchange_s, has_slots)
        return replace(found, wall_s=found.wall_s * slowness, occupied_s=found.occupied_s * slowness)

    predicted = {policy: (told(policy, True), told(policy, False)) for policy in POLICIES}
    turns = [{policy: run(bench, policy, forced) for policy in POLICIES} for _ in range(rounds)]
    return {
        policy: Comparison(
            measured=_median([turn[policy] for turn in turns]), predicted=with_slots, counted=counted
        )
        for policy, (with_slots, counted) in predicted.items()
    }


def learn(bench: Bench) -> tuple[dict[str, Measured], float]:
    """One rollout of each policy after a warm-up, and how much longer they took than medians of passes."""
    num_prompts = len(bench.uids)
    run(bench, "static", epoch(WARM_UP, num_prompts), learns=True)
    forced = epoch(LEARNED, num_prompts)
    learned = {policy: run(bench, policy, forced, learns=True) for policy in POLICIES}
    ratios = [
        learned[policy].wall_s / predict(bench, policy, forced, learned[policy].exchange_s).wall_s
        for policy in WITHOUT_COSTS
    ]
    return learned, statistics.median(ratios)


def run(bench: Bench, policy: str, forced: np.ndarray, *, learns: bool = False) -> Measured:
    """One rollout; costs change only where it `learns`. All ranks call it."""
    beats: list[tuple[float, int]] = []

    def on_pass(progress: PassProgress) -> None:
        # A rank that has parted exchanges nothing.
        if not progress.is_detached:
            beats.append((time.perf_counter(), progress.active))

    stats = bench.generate(policy, forced, on_pass)
    if learns:
        bench.learn(stats[0])
    whole = as_run(int(forced.sum()), stats)
    extra = list(_exchanges(beats)) if SHRINKS[policy] != "never" else []
    return Measured(
        wall_s=whole.wall_s,
        occupied_s=whole.occupied_s,
        passes=stats[0].passes,
        rank_steps=whole.rank_steps,
        exchange_s=max(0.0, statistics.median(extra)) if extra else 0.0,
    )


def _exchanges(beats: list[tuple[float, int]]) -> Iterator[float]:
    """Seconds of each exchange without a shrink: what its pass took more than those beside it.

    Args:
        beats: (when it was agreed on, active ranks) of each pass.
    """
    for after in range(INTERVAL, len(beats) - 1, INTERVAL):
        times, active = zip(*beats[after - 2 : after + 2], strict=True)
        before, with_exchange, behind = np.diff(times)
        if active[0] == active[-1] > 1:
            yield with_exchange - (before + behind) / 2


def _median(runs: list[Measured]) -> Measured:
    names = ("wall_s", "occupied_s", "passes", "rank_steps", "exchange_s")
    return Measured(**{name: statistics.median(getattr(each, name) for each in runs) for name in names})


def _cells(each: Comparison) -> Iterator[str]:
    real, told = each.measured, each.predicted
    yield f"{real.passes:.0f}/{told.passes}"
    yield f"{real.rank_steps:.0f}/{told.rank_steps}"
    pairs = ((real.wall_s, told.wall_s), (real.occupied_s, told.occupied_s))
    for (seconds, simulated), error in zip(pairs, each.errors(told), strict=True):
        yield f"{seconds:.2f}/{simulated:.2f}"
        yield f"{error:.1%}"


if __name__ == "__main__":
    main()
