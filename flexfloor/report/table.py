"""The ledger's table: a row a step, and the sum of all steps.

Invariants:
- a row's figures are the metrics of its step, a sum's fractions those of the summed seconds and tokens;
- the sum counts every step, also those whose rows are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flexfloor.ledger.balance import state_seconds
from flexfloor.ledger.metrics import Occupation, occupation
from flexfloor.ledger.types import State, StepRecord
from flexfloor.report.thin import MAX_STEPS


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Who held the ranks in one step, or in several."""

    step: int | None
    """None for the sum of all steps."""
    seconds: float
    """Wall time."""
    state_seconds: Mapping[State, float]
    """Rank-seconds."""
    occupied_seconds: float
    """Rank-seconds from the start of generation to the release of each rank."""
    occupied_fraction: float | None
    """Of the rank-seconds of generation; None without one."""
    idle_fraction: float | None
    """Of the occupied rank-seconds."""
    tokens: int
    """Of all responses."""
    tokens_per_occupied_second: float | None
    throughput: float | None
    """Response tokens a second of generation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The newest steps and all steps in sum."""

    rows: list[Row]
    total: Row
    num_steps: int
    """Of the run, also those without a row."""


def make_table(
    steps: Sequence[Sequence[StepRecord]], tokens: Mapping[int, float], max_rows: int = MAX_STEPS
) -> Table:
    """The table of at least one step.

    Args:
        steps: settled records of all steps, in order.
        tokens: response tokens by step, of the steps that trained.
        max_rows: newest steps that have a row.
    """
    held = [occupation(records) for records in steps]
    spent = [state_seconds(records) for records in steps]
    counts = [int(tokens.get(records[0].step, 0)) for records in steps]
    rows = [
        _row(records[0].step, records[0].seconds, spent[i], held[i], counts[i], len(records) * held[i].wall_s)
        for i, records in enumerate(steps)
    ]
    total = _row(
        None,
        sum(records[0].seconds for records in steps),
        {state: sum(each[state] for each in spent) for state in State},
        Occupation(
            wall_s=sum(each.wall_s for each in held),
            occupied_s=sum(each.occupied_s for each in held),
            idle_s=sum(each.idle_s for each in held),
        ),
        sum(counts),
        sum(len(records) * each.wall_s for records, each in zip(steps, held, strict=True)),
    )
    return Table(rows=rows[-max_rows:], total=total, num_steps=len(steps))


def _row(
    step: int | None,
    seconds: float,
    spent: Mapping[State, float],
    held: Occupation,
    tokens: int,
    available_s: float,
) -> Row:
    """Args: available_s: rank-seconds of the generation, had no rank left it."""
    return Row(
        step=step,
        seconds=seconds,
        state_seconds=spent,
        occupied_seconds=held.occupied_s,
        occupied_fraction=_over(held.occupied_s, available_s),
        idle_fraction=_over(held.idle_s, held.occupied_s),
        tokens=tokens,
        tokens_per_occupied_second=_over(tokens, held.occupied_s),
        throughput=_over(tokens, held.wall_s),
    )


def _over(part: float, whole: float) -> float | None:
    return part / whole if whole > 0.0 else None
