"""The simulated half of `make bench-schedule`: modelled GPUs on which a fixed group idles for a third.

Each setting is a file of conf/simulate, so that `flexfloor simulate simulate=NAME` shows it with pictures.
Nothing here was measured on a GPU; tables and JSON say so. Of the frontier the point is told that occupies
least at no loss of throughput against `paged`.
"""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from flexfloor.config import compose, finite_numbers
from flexfloor.simulate.comparison import Result, compare, trade_off
from flexfloor.simulate.resolve import scenario_of

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
class Compared:
    """One setting."""

    results: dict[str, Result]
    """By policy."""
    frontier: list[Result]
    """`flexfloor` with ever more seconds given for rank-seconds, the fastest first."""

    @property
    def chosen(self) -> Result:
        """The point that occupies least, of those at least as fast as `paged`; else the fastest."""
        fast = [each for each in self.frontier if self.is_fast(each)] or self.frontier[:1]
        return max(fast, key=lambda each: each.tokens_per_occupied)

    def is_fast(self, result: Result) -> bool:
        """Whether it loses no throughput against `paged`."""
        return result.throughput >= self.results["paged"].throughput


def simulate_setting(name: str) -> Compared:
    """All policies and the frontier of one setting."""
    scenario = scenario_of(compose([f"simulate={name}"], check=finite_numbers))
    results = {each.policy.name: each for each in compare(scenario, POLICIES, EPOCHS)}
    found = Compared(
        results=results, frontier=[results["flexfloor"], *trade_off(scenario, SLOWDOWNS, EPOCHS)]
    )
    for _ in range(HALVINGS):
        fast = [each.policy.max_slowdown for each in found.frontier if found.is_fast(each)]
        slow = [each.policy.max_slowdown for each in found.frontier if not found.is_fast(each)]
        if fast and slow and max(fast) < min(slow):
            found.frontier.extend(trade_off(scenario, [(max(fast) + min(slow)) / 2], EPOCHS))
    found.frontier.sort(key=lambda each: each.policy.max_slowdown)
    return found


def told(found: Compared) -> dict[str, object]:
    """The figures of one setting for the JSON line."""
    paged, chosen = found.results["paged"], found.chosen
    fastest, oracle = found.results["flexfloor"], found.results["oracle"]
    return {
        "baseline_idle": round(paged.idle_fraction, 3),
        "over_paged": _over(chosen, paged),
        "over_reserved": _over(chosen, found.results["reserved"]),
        "point": chosen.policy.name,
        "fastest_over_paged": _over(fastest, paged),
        "throughput_of_oracle": round(fastest.throughput / oracle.throughput, 3),
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
    for column in ("", "throughput", "tokens per occupied rank-second", "idle", "step time", "shrinks"):
        table.add_column(column, justify="right" if column else "left")
    paged = compared.results["paged"]
    for each in [*compared.results.values(), *compared.frontier[1:]]:
        over = _over(each, paged)
        is_chosen = each is compared.chosen
        label = each.policy.name + (" (told)" if is_chosen else "")
        cells = (
            f"{over['throughput']:.2f}",
            f"{over['tokens_per_occupied']:.2f}",
            f"{each.idle_fraction:.0%}",
        )
        table.add_row(label, *cells, f"{each.step_s / paged.step_s:.2f}", f"{each.mean('shrinks'):.1f}")
    return table
