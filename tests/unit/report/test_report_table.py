"""The ledger's table: rows and sums worked out by hand."""

from __future__ import annotations

import pytest

from flexfloor.ledger.metrics import ledger_metrics
from flexfloor.ledger.types import Interval, State, StepRecord
from flexfloor.report.notes import table_notes
from flexfloor.report.table import make_table


def step(number: int, leaves_at: float | None) -> list[StepRecord]:
    """Two ranks, 4 s of rollout and 2 s of update; rank 0 idles in the last second, rank 1 may leave."""
    busy = [
        Interval(start_s=0.0, end_s=4.0, state=State.GENERATING, stage="rollout", idle_from_s=3.0),
        Interval(start_s=4.0, end_s=6.0, state=State.TRAINING, stage="update"),
    ]
    if leaves_at is None:
        second = busy
    else:
        second = [
            Interval(start_s=0.0, end_s=leaves_at, state=State.GENERATING, stage="rollout"),
            Interval(start_s=leaves_at, end_s=4.0, state=State.WAITING, stage="rollout"),
            busy[1],
        ]
    return [
        StepRecord(
            rank=rank,
            step=number,
            opened_s=6.0 * number,
            seconds=6.0,
            intervals=tuple(intervals),
            released_s=leaves_at if rank else None,
        )
        for rank, intervals in enumerate((busy, second))
    ]


STEPS = [step(0, None), step(1, 2.0), step(2, 1.0)]
TOKENS = {1: 300.0, 2: 100.0}


def test_a_row_holds_what_the_step_logged() -> None:
    row = make_table(STEPS, TOKENS).rows[1]
    assert (row.step, row.seconds, row.tokens) == (1, 6.0, 300)
    assert row.state_seconds == {"generating": 6.0, "shrinking": 0.0, "training": 4.0, "waiting": 2.0}
    assert row.occupied_seconds == 6.0  # 4 of rank 0 and 2 of rank 1
    assert row.occupied_fraction == 6.0 / 8.0
    assert row.idle_fraction == pytest.approx(1.0 / 6.0)
    assert (row.tokens_per_occupied_second, row.throughput) == (50.0, 75.0)
    logged = ledger_metrics(STEPS[1], 300)
    assert row.idle_fraction == logged["rollout/idle_fraction"]
    assert row.occupied_fraction == logged["rollout/occupied_fraction"]


def test_the_sum_weighs_by_seconds_and_not_by_steps() -> None:
    """8, 6 and 5 occupied of 8 rank-seconds each; 2, 1 and 1 of them idle; 400 tokens in 12 s."""
    total = make_table(STEPS, TOKENS).total
    assert (total.step, total.seconds, total.tokens) == (None, 18.0, 400)
    assert total.state_seconds == {"generating": 19.0, "shrinking": 0.0, "training": 12.0, "waiting": 5.0}
    assert total.occupied_fraction == 19.0 / 24.0
    assert total.idle_fraction == pytest.approx(4.0 / 19.0)
    assert total.tokens_per_occupied_second == pytest.approx(400 / 19)
    assert total.throughput == pytest.approx(400 / 12)


def test_a_step_without_generation_has_no_fractions() -> None:
    update = Interval(start_s=0.0, end_s=2.0, state=State.TRAINING, stage="sft")
    alone = StepRecord(rank=0, step=0, opened_s=0.0, seconds=2.0, intervals=(update,))
    row = make_table([[alone]], {}).total
    assert row.occupied_seconds == 0.0
    assert (
        row.occupied_fraction is row.idle_fraction is row.throughput is row.tokens_per_occupied_second is None
    )


def test_old_rows_are_left_out_and_counted() -> None:
    table = make_table(STEPS, TOKENS, max_rows=2)
    assert [row.step for row in table.rows] == [1, 2]
    assert table.total == make_table(STEPS, TOKENS).total
    assert table_notes(table) == ["Steps before 1 have no row here; the sum counts them."]
    assert table_notes(make_table(STEPS, TOKENS)) == []
