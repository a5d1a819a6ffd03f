"""The ledger as a Chrome trace, which Perfetto (ui.perfetto.dev) and chrome://tracing open.

The run is the process, each rank a thread of it; an interval is a complete event ("X") with its idle
part nested in it, a lease lies around its intervals, and a thread of its own shows the steps.

Invariants:
- events of a thread nest or follow each other, and lie inside their step;
- times are microseconds from the start of the run's first step.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from flexfloor.ledger.clock import step_starts
from flexfloor.ledger.types import Interval, Lease, StepRecord

RUN_PID = 1
"""Process id of the run in the trace."""


def write_trace(steps: Sequence[Sequence[StepRecord]], path: Path, run_name: str) -> Path:
    """Write the trace of all steps to `path` (JSON) and return it."""
    trace = {"displayTimeUnit": "ms", "traceEvents": trace_events(steps, run_name)}
    path.write_text(json.dumps(trace, allow_nan=False), encoding="utf-8")
    return path


def trace_events(steps: Sequence[Sequence[StepRecord]], run_name: str) -> list[dict[str, Any]]:
    """The trace's events: names first, then each step and the intervals of its ranks."""
    num_ranks = max((len(records) for records in steps), default=0)
    events = list(_names(run_name, num_ranks))
    for start, records in zip(step_starts(steps), steps, strict=True):
        step = records[0].step
        span = (start, start + records[0].seconds)
        events.append(_event(f"step {step}", "step", num_ranks, span, {"step": step}))
        for record in records:
            for lease in record.leases:
                events.append(_lease_event(record, lease, start))
            for interval in record.intervals:
                events.extend(_interval_events(record, interval, start))
    return events


def _names(run_name: str, num_ranks: int) -> Iterator[dict[str, Any]]:
    """Metadata: what the process and its threads are called, and their order (steps on top)."""
    yield _metadata("process_name", 0, {"name": run_name})
    for rank in range(num_ranks):
        yield _metadata("thread_name", rank, {"name": f"rank {rank}"})
        yield _metadata("thread_sort_index", rank, {"sort_index": rank})
    yield _metadata("thread_name", num_ranks, {"name": "steps"})
    yield _metadata("thread_sort_index", num_ranks, {"sort_index": -1})


def _lease_event(record: StepRecord, lease: Lease, start: float) -> dict[str, Any]:
    args = {"step": record.step, "owner": lease.owner, "ranks": list(lease.ranks)}
    span = (start + lease.start_s, start + lease.end_s)
    return _event(f"lease: {lease.owner}", "lease", record.rank, span, args)


def _interval_events(record: StepRecord, interval: Interval, start: float) -> Iterator[dict[str, Any]]:
    args = {"step": record.step, "state": interval.state, "stage": interval.stage}
    end = start + interval.end_s
    name = f"{interval.state}: {interval.stage}"
    yield _event(name, interval.state, record.rank, (start + interval.start_s, end), args)
    if interval.idle_from_s is not None:
        yield _event("idle", "idle", record.rank, (start + interval.idle_from_s, end), args)


def _event(
    name: str, category: str, tid: int, span_s: tuple[float, float], args: dict[str, Any]
) -> dict[str, Any]:
    """A complete event. Both ends are whole nanoseconds, so that nested events end exactly together."""
    begin_ns, end_ns = (round(seconds * 1e9) for seconds in span_s)
    return {
        "ph": "X",
        "pid": RUN_PID,
        "tid": tid,
        "name": name,
        "cat": category,
        "ts": begin_ns / 1e3,
        "dur": (end_ns - begin_ns) / 1e3,
        "args": args,
    }


def _metadata(name: str, tid: int, args: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "M", "pid": RUN_PID, "tid": tid, "name": name, "args": args}
