"""The ledger on disk: `ledger.jsonl`, one line a step with the records of all ranks.

Invariants:
- what is read equals what was written, to the last bit of every number;
- a resumed run's file holds each step once (see `track.jsonl`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flexfloor.ledger.types import Interval, Lease, State, StepRecord
from flexfloor.track.jsonl import StepLog, read_steps


class LedgerFile:
    """Appends the settled records of each step to a file; rank 0 holds it.

    Args:
        path: the file, by custom `ledger.jsonl` in the run folder.
        first_step: first step that this run will write; what is there from it on is set aside.

    Raises:
        FlexFloorError: the file cannot be read or written.
    """

    def __init__(self, path: Path, first_step: int = 0) -> None:
        self._log = StepLog(path, first_step)

    def append(self, records: Sequence[StepRecord]) -> None:
        """Write the records of one step, all ranks', in rank order."""
        self._log.write({"step": records[0].step, "ranks": [_to_json(record) for record in records]})

    def close(self) -> None:
        """Close the file."""
        self._log.close()


def read_ledger(path: Path) -> list[tuple[StepRecord, ...]]:
    """The records of each step in the file's order; empty when there is no file."""
    return [tuple(_from_json(entry, line["step"]) for entry in line["ranks"]) for line in read_steps(path)]


def _to_json(record: StepRecord) -> dict[str, Any]:
    return {
        "rank": record.rank,
        "opened_s": record.opened_s,
        "seconds": record.seconds,
        "released_s": record.released_s,
        "intervals": [
            [each.start_s, each.end_s, each.state, each.stage, each.idle_from_s] for each in record.intervals
        ],
        "leases": [[each.owner, each.ranks, each.start_s, each.end_s] for each in record.leases],
    }


def _from_json(entry: Mapping[str, Any], step: int) -> StepRecord:
    return StepRecord(
        rank=entry["rank"],
        step=step,
        opened_s=entry["opened_s"],
        seconds=entry["seconds"],
        released_s=entry["released_s"],
        intervals=tuple(
            Interval(start_s=start, end_s=end, state=State(state), stage=stage, idle_from_s=idle)
            for start, end, state, stage, idle in entry["intervals"]
        ),
        # Not in the files of the first runs.
        leases=tuple(
            Lease(owner=owner, ranks=tuple(ranks), start_s=start, end_s=end)
            for owner, ranks, start, end in entry.get("leases", [])
        ),
    )
