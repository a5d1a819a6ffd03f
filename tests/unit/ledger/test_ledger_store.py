"""The ledger on disk, on one time line, and as a trace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flexfloor.ledger.clock import step_starts
from flexfloor.ledger.store import LedgerFile, read_ledger
from flexfloor.ledger.trace import write_trace
from flexfloor.ledger.types import Interval, State, StepRecord


def step(number: int, opened_s: float, seconds: float = 2.0, ranks: int = 2) -> tuple[StepRecord, ...]:
    """A step of generating (idle from 1 s before the end on rank 1) and nothing else but a third to train."""
    edge = seconds * 2 / 3
    return tuple(
        StepRecord(
            rank=rank,
            step=number,
            opened_s=opened_s,
            seconds=seconds,
            released_s=1 / 7 if rank else None,
            intervals=(
                Interval(
                    start_s=0.0,
                    end_s=edge,
                    state=State.GENERATING,
                    stage="rollout",
                    idle_from_s=edge / 3 if rank else None,
                ),
                Interval(start_s=edge, end_s=seconds, state=State.TRAINING, stage="update"),
            ),
        )
        for rank in range(ranks)
    )


def test_what_is_read_equals_what_was_written(tmp_path: Path) -> None:
    steps = [step(0, 0.1), step(1, 1 / 3, seconds=0.7)]
    file = LedgerFile(tmp_path / "ledger.jsonl")
    for records in steps:
        file.append(records)
    file.close()
    assert read_ledger(tmp_path / "ledger.jsonl") == steps
    states = read_ledger(tmp_path / "ledger.jsonl")[0][0].intervals[0].state
    assert states is State.GENERATING


def test_a_resumed_run_holds_each_step_once(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    file = LedgerFile(path)
    for number in range(4):
        file.append(step(number, float(number)))
    file.close()
    resumed = LedgerFile(path, first_step=2)
    resumed.append(step(2, 0.5, seconds=9.0))
    resumed.close()
    assert [(records[0].step, records[0].seconds) for records in read_ledger(path)] == [
        (0, 2.0),
        (1, 2.0),
        (2, 9.0),
    ]


def test_steps_lie_on_one_time_line() -> None:
    assert step_starts([step(0, 5.0), step(1, 7.5), step(2, 10.0)]) == [0.0, 2.5, 5.0]


def test_a_resumed_clock_goes_on_where_the_run_stopped() -> None:
    starts = step_starts([step(0, 5.0), step(1, 7.5), step(2, 0.5), step(3, 3.0)])
    assert starts == [0.0, 2.5, 4.5, 7.0]


@pytest.fixture
def events(tmp_path: Path) -> list[dict]:
    path = write_trace([step(0, 1.0), step(1, 4.0)], tmp_path / "trace.json", "tiny-mixtral")
    trace = json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(f"{name} in the trace"))
    assert set(trace) == {"traceEvents", "displayTimeUnit"}
    return trace["traceEvents"]


def test_trace_names_run_and_ranks(events: list[dict]) -> None:
    names = {
        (event["name"], event["tid"]): event["args"]["name"]
        for event in events
        if event["ph"] == "M" and event["name"] != "thread_sort_index"
    }
    assert names == {
        ("process_name", 0): "tiny-mixtral",
        ("thread_name", 0): "rank 0",
        ("thread_name", 1): "rank 1",
        ("thread_name", 2): "steps",
    }
    assert {event["pid"] for event in events} == {1}


def test_trace_has_each_interval_in_microseconds(events: list[dict]) -> None:
    found = {
        (event["name"], event["tid"], event["args"]["step"]): (event["ts"], event["dur"])
        for event in events
        if event["ph"] == "X"
    }
    assert len(found) == 2 * (1 + 2 + 3)
    assert found["step 1", 2, 1] == (3e6, 2e6)
    assert found["generating: rollout", 0, 1] == pytest.approx((3e6, 4e6 / 3), abs=0.001)
    assert found["training: update", 1, 0] == pytest.approx((4e6 / 3, 2e6 / 3), abs=0.001)
    assert found["idle", 1, 0] == pytest.approx((4e6 / 9, 8e6 / 9), abs=0.001)
    assert ("idle", 0, 0) not in found


def test_trace_events_of_a_rank_nest_or_follow(events: list[dict]) -> None:
    """In whole nanoseconds, as Perfetto holds them: an event ends inside every one that is still open."""
    for tid in range(3):
        open_ends: list[int] = []
        own = [event for event in events if event["ph"] == "X" and event["tid"] == tid]
        for event in sorted(own, key=lambda event: (event["ts"], -event["dur"])):
            begin = round(event["ts"] * 1000)
            end = begin + round(event["dur"] * 1000)
            open_ends = [other for other in open_ends if other > begin]
            assert all(end <= other for other in open_ends)
            open_ends.append(end)
