"""Occupied and idle time, worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flexfloor.ledger.metrics import ledger_metrics, occupation, overlap_metrics, timing_metrics
from flexfloor.ledger.types import EARLY_UPDATE, Interval, Lease, State, StepRecord


def record(rank: int, parts: list[tuple], released_s: float | None = None) -> StepRecord:
    """A record from (start, end, state, stage[, idle from]) parts."""
    intervals = tuple(
        Interval(start_s=p[0], end_s=p[1], state=State(p[2]), stage=p[3], idle_from_s=p[4] if p[4:] else None)
        for p in parts
    )
    return StepRecord(
        rank=rank,
        step=0,
        opened_s=0.0,
        seconds=parts[-1][1],
        intervals=intervals,
        released_s=released_s,
    )


FIXED = [
    record(0, [(0, 1, "waiting", "data"), (1, 11, "generating", "rollout"), (11, 14, "training", "update")]),
    record(
        1, [(0, 1, "waiting", "data"), (1, 11, "generating", "rollout", 7), (11, 14, "training", "update")]
    ),
]
"""Two ranks of a fixed group: both occupied for the 10 s of generation, rank 1 idle for the last 4."""

SHRUNK = [
    record(
        0,
        [
            (0, 4, "generating", "rollout"),
            (4, 5, "shrinking", "rollout"),
            (5, 10, "generating", "rollout", 9),
            (10, 12, "training", "update"),
        ],
    ),
    record(
        1,
        [
            (0, 4, "generating", "rollout", 3),
            (4, 5, "shrinking", "rollout"),
            (5, 12, "training", "update"),
        ],
        released_s=5,
    ),
]
"""Rank 1 is released at 5 of 10 s, idle for 1 s before the shrink; rank 0 is idle for the last second."""


def test_fixed_group() -> None:
    metrics = ledger_metrics(FIXED, num_response_tokens=400)
    assert metrics == pytest.approx(
        {
            "ledger/generating_seconds": 20,
            "ledger/shrinking_seconds": 0,
            "ledger/training_seconds": 6,
            "ledger/waiting_seconds": 2,
            "rollout/occupied_fraction": 1.0,
            "rollout/idle_fraction": 4 / 20,
            "rollout/tokens_per_occupied_second": 400 / 20,
            "rollout/throughput": 400 / 10,
        }
    )


def test_released_rank() -> None:
    metrics = ledger_metrics(SHRUNK, num_response_tokens=300)
    assert metrics["rollout/occupied_fraction"] == pytest.approx(15 / 20)
    assert metrics["rollout/idle_fraction"] == pytest.approx(2 / 15)
    assert metrics["rollout/tokens_per_occupied_second"] == pytest.approx(20)
    assert metrics["rollout/throughput"] == pytest.approx(30)
    assert metrics["ledger/shrinking_seconds"] == pytest.approx(2)


def test_a_rank_that_left_generation_without_release_is_occupied_and_idle_to_its_end() -> None:
    left = record(1, [(0, 6, "generating", "rollout"), (6, 10, "waiting", "rollout")])
    held = occupation([record(0, [(0, 10, "generating", "rollout")]), left])
    assert (held.wall_s, held.occupied_s, held.idle_s) == pytest.approx((10, 20, 4))


def test_validation_changes_no_rollout_metric() -> None:
    validated = record(0, [(0, 8, "generating", "validation", 2)])
    assert occupation([validated]).occupied_s == 0
    assert "rollout/throughput" not in ledger_metrics([validated], num_response_tokens=5)
    assert ledger_metrics([validated], 5)["ledger/generating_seconds"] == 8


def test_seconds_by_stage_sum_to_the_step() -> None:
    timing = timing_metrics(SHRUNK)
    assert timing == pytest.approx(
        {"timing_s/gen": (10 + 5) / 2, "timing_s/update_actor": (2 + 7) / 2, "timing_s/step": 12}
    )


def test_training_is_hidden_until_the_last_rank_has_generated() -> None:
    parts = [
        (0, 4, "generating", "rollout"),
        (4, 5, "waiting", "rollout"),
        (5, 7, "training", EARLY_UPDATE),
        (7, 8, "waiting", EARLY_UPDATE),
        (8, 12, "training", EARLY_UPDATE),
        (12, 13, "training", "update"),
    ]
    lease = Lease(owner=EARLY_UPDATE, ranks=(1,), start_s=5, end_s=12)
    released = replace(record(1, parts, released_s=4), leases=(lease,))
    stayer = record(0, [(0, 10, "generating", "rollout"), (10, 13, "training", "update")])
    # Generation ends at 10: 2 s and the first 2 of the last 4 s lie under it.
    assert overlap_metrics([stayer, released]) == {
        "overlap/hidden_seconds": 4.0,
        "overlap/waiting_seconds": 1.0,
    }


def test_a_step_without_leases_has_no_overlap() -> None:
    assert overlap_metrics(SHRUNK) == {}
