"""The simulated half of `make bench-schedule`: modelled GPUs on which a fixed group idles for a third.

Each setting is a file of conf/simulate, so that `flexfloor simulate simulate=NAME` shows it with pictures.
Nothing here was measured on a GPU; tables and JSON say so. Of the frontier the point is told that occupies
least at no loss of throughput against `paged`, beside what known lengths give there and what nothing beats.
No update begins early, so that ranks part where memory allows it; a frontier without that stands beside.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from rich.console import Console
from rich.table import Table

from flexfloor.config import compose, finite_numbers
from flexfloor.simulate.bound import least_occupied, least_wall
from flexfloor.simulate.comparison import Result, compare, trade_off
from flexfloor.simulate.resolve import scenario_of
from flexfloor.simulate.scenario import Scenario

SETTINGS = (
    "qwen3-30b-8gpu",
    "qwen3-30b-16gpu",
    "qwen3-30b-16gpu-launch-bound",
    "mixtral-8x7b-8gpu",
    "mixtral-8x7b-16gpu",
    "deepseek-v3-64gpu",
    "deepseek-v3-256gpu",
    "qwen3-30b-8gpu-waves",
)
POLICIES = (
    "paged",
    "reserved",
    "longest_first",
    "planned",
    "unmoved",
    "greedy",
    "flexfloor",
    "oracle",
)
SLOWDOWNS, HALVINGS = (0.05, 0.1, 0.2, 0.4), 3
"""Points of the frontier, and how often the stretch is halved in which `paged` is as fast."""
EPOCHS = 3
"""The first has no history and does not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frontier:
    """One schedule with ever more seconds given for rank-seconds, the fastest first."""

    points: list[Result]
    paged: Result

    @property
    def chosen(self) -> Result:
        """The point that occupies least, of those at least as fast as `paged`; else the fastest."""
        fast = [each for each in self.points if self.is_fast(each)] or self.points[:1]
        return max(fast, key=lambda each: each.tokens_per_occupied)

    def is_fast(self, result: Result) -> bool:
        """Whether it loses no throughput against `paged`."""
        return result.throughput >= self.paged.throughput


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One setting."""

    results: dict[str, Result]
    """By policy."""
    ours: Frontier
    """Of `flexfloor`."""
    known: Frontier
    """Of `oracle`."""
    together: Frontier
    """Of `flexfloor`, whose ranks never part; `ours` where they do not anyway."""
    bound: dict[str, float]
    """`simulate.bound`, over `paged`."""


def simulate_setting(name: str) -> Compared:
    """All policies and the frontiers of one setting."""
    # An update that begins early wants ranks that leave in order; these objectives look at rollouts alone.
    scenario = replace(scenario_of(compose([f"simulate={name}"], check=finite_numbers)), overlap=False)
    results = {each.policy.name: each for each in compare(scenario, POLICIES, EPOCHS)}
    ours = _frontier(scenario, results["flexfloor"], results["paged"])
    together = ours
    if any(each.mean("detached_ranks") for each in ours.points):
        staying = replace(scenario, detach=False)
        together = _frontier(staying, *compare(staying, ["flexfloor"], EPOCHS), results["paged"])
    return Compared(
        results=results,
        ours=ours,
        known=_frontier(scenario, results["oracle"], results["paged"]),
        together=together,
        bound=_bound(scenario, results["paged"]),
    )


def _frontier(scenario: Scenario, fastest: Result, paged: Result) -> Frontier:
    policy = fastest.policy.name
    points = [fastest, *trade_off(scenario, SLOWDOWNS, EPOCHS, policy)]
    found = Frontier(points=points, paged=paged)
    for _ in range(HALVINGS):
        fast = [each.policy.max_slowdown for each in points if found.is_fast(each)]
        slow = [each.policy.max_slowdown for each in points if not found.is_fast(each)]
        if fast and slow and max(fast) < min(slow):
            points.extend(trade_off(scenario, [(max(fast) + min(slow)) / 2], EPOCHS, policy))
    points.sort(key=lambda each: each.policy.max_slowdown)
    return found


def _bound(scenario: Scenario, paged: Result) -> dict[str, float]:
    steps = [scenario.trace.step(epoch) for epoch in range(EPOCHS)][1:]
    wall, occupied = (len(steps) * paged.mean(name) for name in ("wall_s", "occupied_s"))
    return {
        "tokens_per_occupied": round(occupied / least_occupied(scenario, steps, wall), 2),
        "throughput": round(wall / least_wall(scenario, steps), 2),
    }


def told(found: Compared) -> dict[str, object]:
    """The figures of one setting for the JSON line."""
    paged, chosen = found.results["paged"], found.ours.chosen
    fastest, oracle = found.results["flexfloor"], found.results["oracle"]
    return {
        "baseline_idle": round(paged.idle_fraction, 3),
        "over_paged": _over(chosen, paged),
        "over_reserved": _over(chosen, found.results["reserved"]),
        "point": chosen.policy.name,
        "fastest_over_paged": _over(fastest, paged),
        "throughput_of_oracle": round(fastest.throughput / oracle.throughput, 3),
        "detached_ranks": round(chosen.mean("detached_ranks"), 1),
        "together_over_paged": _over(found.together.chosen, paged),
        "together_fastest_over_paged": _over(found.together.points[0], paged),
        "oracle_over_paged": _over(found.known.chosen, paged),
        "bound_over_paged": found.bound,
        "parts_over_paged": {
            name: _over(found.results[name], paged)
            for name in ("longest_first", "planned", "unmoved", "greedy", "oracle")
        },
    }


def simulated(names: tuple[str, ...] = SETTINGS, console: Console | None = None) -> dict[str, object]:
    """Simulate the settings, print a table for each, and return the figures of the JSON line."""
    console = console or Console()
    found = {}
    for name in names:
        compared = simulate_setting(name)
        console.print(_table(name, compared))
        found[name] = told(compared)
    return found


def _over(result: Result, base: Result) -> dict[str, float]:
    return {
        "tokens_per_occupied": round(result.tokens_per_occupied / base.tokens_per_occupied, 2),
        "throughput": round(result.throughput / base.throughput, 2),
    }


def _table(name: str, compared: Compared) -> Table:
    table = Table(title=f"{name}, simulated: over paged")
    table.add_column("", no_wrap=True)
    for column in ("throughput", "tokens per occupied rank-second", "idle", "step time", "shrinks", "parted"):
        table.add_column(column, justify="right")
    paged = compared.results["paged"]

    def add(label: str, each: Result) -> None:
        over = _over(each, paged)
        figures = (
            f"{over['throughput']:.2f}",
            f"{over['tokens_per_occupied']:.2f}",
            f"{each.idle_fraction:.0%}",
        )
        counts = (f"{each.mean('shrinks'):.1f}", f"{each.mean('detached_ranks'):.1f}")
        table.add_row(label, *figures, f"{each.step_s / paged.step_s:.2f}", *counts)

    for each in [*compared.results.values(), *compared.ours.points[1:]]:
        add(each.policy.name + (" (told)" if each is compared.ours.chosen else ""), each)
    if compared.together is not compared.ours:
        add("never parting, fastest", compared.together.points[0])
        add("never parting, as fast as paged", compared.together.chosen)
    add("oracle, as fast as paged", compared.known.chosen)
    bound = compared.bound
    table.add_row("bound of each", f"{bound['throughput']:.2f}", f"{bound['tokens_per_occupied']:.2f}")
    return table
