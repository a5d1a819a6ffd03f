"""The simulated part of `bench_overlap`: modelled GPUs, at the settings of the schedule comparison.

Nothing here was measured on a GPU; table and JSON say so. Training is taken as divisible work, and a lease
opens when its ranks hold all weights and gradients. A step's bound is that of its own rollout: the longer of
generation and of all that its ranks do, evenly spread. Beside it stands a step without overlap whose ranks
may part, which they cannot where an update begins early.
"""

from __future__ import annotations

from dataclasses import replace

from rich.console import Console
from rich.table import Column, Table
from schedule_simulated import EPOCHS, SETTINGS

from flexfloor.config import compose, finite_numbers
from flexfloor.simulate.comparison import compare
from flexfloor.simulate.resolve import scenario_of

__all__ = ["SETTINGS", "simulated"]


def simulated(settings: tuple[str, ...]) -> dict[str, dict[str, float]]:
    """Figures by setting, and a table."""
    table = Table(
        Column("setting", no_wrap=True),
        "step over no overlap",
        "over parting",
        "over paged",
        "over its bound",
        "hidden of the hideable",
        "trained early",
        title="simulated, modelled GPUs",
    )
    told = {}
    for name in settings:
        found = told[name] = simulate_setting(name)
        names = ("off", "parting", "static", "bound")
        shares = ("hidden_share", "trained_fraction")
        table.add_row(
            name,
            *(f"{found['step_time_over_' + n]:.3f}" for n in names),
            *(f"{found[n]:.0%}" for n in shares),
        )
    Console().print(table)
    return told


def simulate_setting(name: str) -> dict[str, float]:
    """One setting: guided by step time, with and without overlap, beside the fixed group."""
    scenario = scenario_of(compose([f"simulate={name}"], check=finite_numbers))
    without = replace(scenario, overlap=False, detach=False)
    [paged] = compare(without, ["paged"], EPOCHS)
    [off] = compare(without, ["flexfloor"], EPOCHS, objective="step_time")
    [parting] = compare(replace(scenario, overlap=False), ["flexfloor"], EPOCHS, objective="step_time")
    [on] = compare(replace(scenario, overlap=True), ["flexfloor"], EPOCHS, objective="step_time")
    bound = max(on.wall_s, (on.mean("occupied_s") + on.mean("training_s")) / scenario.num_gpus)
    return {
        "step_time_over_off": round(on.step_s / off.step_s, 3),
        "hidden_share": round(on.hidden_share, 3),
        "step_time_over_static": round(on.step_s / paged.step_s, 3),
        "step_time_over_parting": round(on.step_s / parting.step_s, 3),
        "step_time_over_bound": round(on.step_s / bound, 3),
        "trained_fraction": round(on.trained_fraction, 3),
    }
