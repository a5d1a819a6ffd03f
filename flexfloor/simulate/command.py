"""`flexfloor simulate`: a table on the console, pictures and figures in a folder.

Invariants:
- Whatever is shown or written says that it is simulated.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from flexfloor.config import Config
from flexfloor.ledger.timeline import draw_timeline
from flexfloor.simulate.comparison import Result, compare, trade_off
from flexfloor.simulate.frontier import draw_frontier
from flexfloor.simulate.recipe_memory import memory_rows
from flexfloor.simulate.resolve import recipe_memory, scenario_of
from flexfloor.simulate.scenario import Scenario
from flexfloor.track.console import Console

COLUMNS = (
    "",
    "rollout",
    "tokens/s",
    "",
    "/ rank-s",
    "",
    "idle",
    "ranks",
    "yields",
    "step",
    "no\noverlap",
    "hidden",
)
"""Seconds of generation; tokens per second, and per occupied rank-second, each also over the first policy's;
share of occupied time after a rank's own responses; occupied ranks in the mean; preemptions; seconds of the
step, and of one that trains only afterwards; share that was trained
beside generation of what could have been."""
FIGURES = (
    "throughput",
    "tokens_per_occupied",
    "idle_fraction",
    "wall_s",
    "step_s",
    "active_ranks",
    "trained_fraction",
    "hidden_share",
    "overlap_step_ratio",
)
COUNTS = (
    "preemptions",
    "recomputed_tokens",
    "shrinks",
    "detached_ranks",
    "shrink_s",
    "rank_passes",
    "training_s",
    "hidden_s",
    "hideable_s",
    "plain_step_s",
)
"""Of a step in the mean, beside what a result says itself."""


def run_simulation(config: Config) -> None:
    """Simulate what `config.simulate` describes, show the comparison and write `simulate.output`."""
    asked, scenario = config.simulate, scenario_of(config)
    results = compare(
        scenario,
        asked.policies,
        asked.epochs,
        objective=config.schedule.objective,
        max_slowdown=config.schedule.max_slowdown,
    )
    traded = trade_off(scenario, asked.slowdowns, asked.epochs)
    console, title = Console(), _title(scenario)
    if asked.model is None:
        rows = memory_rows(recipe_memory(config, scenario.ep), scenario.memory.budget)
        console.table("simulated: GiB on each GPU, estimated", ("", ""), rows, 1)
    console.table(f"simulated: {title}", COLUMNS, _rows(results))
    console.table("schedules", ("", ""), [(each.policy.name, each.policy.meaning) for each in results], 2)
    folder = Path(asked.output)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "simulated.json").write_text(
        json.dumps(figures([*results, *traded]), indent=1) + "\n", encoding="utf-8"
    )
    draw_frontier(results, folder / "frontier.png", title=title, trade_off=traded)
    for each in results:
        draw_timeline([each.steps[-1].records], folder / f"timeline-{each.policy.name}.png")
    console.line(f"pictures and figures: {folder}")


def figures(results: Sequence[Result]) -> dict[str, dict[str, float]]:
    """By policy, what the table shows and more, as numbers."""
    return {
        each.policy.name: {
            **{name: getattr(each, name) for name in FIGURES},
            **{name: each.mean(name) for name in COUNTS},
        }
        for each in results
    }


def _title(scenario: Scenario) -> str:
    groups, count = scenario.num_gpus // scenario.ep, len(scenario.trace.step(0).tokens)
    spread = (
        f"one expert group of {scenario.ep}" if groups == 1 else f"{groups} expert groups of {scenario.ep}"
    )
    if scenario.tp > 1:
        spread += f" in replicas of {scenario.tp}"
    name = scenario.hardware.name.upper()
    return f"{scenario.model.name} on {scenario.num_gpus} {name}, {spread}; {count} responses a step"


def _rows(results: Sequence[Result]) -> list[list[str]]:
    base = results[0]
    return [
        [
            each.policy.name,
            _time(each.wall_s),
            f"{each.throughput:,.0f}",
            f"{each.throughput / base.throughput:.2f}x",
            f"{each.tokens_per_occupied:,.1f}",
            f"{each.tokens_per_occupied / base.tokens_per_occupied:.2f}x",
            f"{100 * each.idle_fraction:.0f} %",
            f"{each.active_ranks:.1f}",
            f"{each.mean('preemptions'):,.0f}",
            _time(each.step_s),
            _time(each.mean("plain_step_s")),
            f"{100 * each.hidden_share:.0f} %" if each.mean("hideable_s") > 0.0 else "",
        ]
        for each in results
    ]


def _time(seconds: float) -> str:
    return f"{seconds:.4g} s" if seconds >= 0.1 else f"{1e3 * seconds:.3g} ms"
