"""`-m`: a job for each combination of values, one after the other, and a table of what became of them.

Invariants:
- Nothing starts while the settings or the data of any job are wrong.
- A job that fails is told and named at the end, and the others run.
- After SIGTERM, which the running job obeys as a run by itself does, no other job starts.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from flexfloor.config import is_rank
from flexfloor.config.sweep import SweepJob, sweep
from flexfloor.error_message import write_error
from flexfloor.errors import ConfigError, DataError, FlexFloorError
from flexfloor.jobs.sweep_table import show_table
from flexfloor.jobs.work import Work, check, start


@dataclass(slots=True)
class _Stop:
    asked: bool = False


@dataclass(slots=True)
class _Progress:
    """How a job has gone so far."""

    job: SweepJob
    outcome: str = "not started"
    complaint: str | None = None
    """Of a job that failed."""


def run_sweep(work: Work, words: list[str], config_dir: Path | None) -> int:
    """Run `work` for each combination that `words` stand for; returns 1 when a job failed, else 0.

    Raises:
        ConfigError, DataError: before anything is started, naming the job.
    """
    if is_rank():
        raise ConfigError("-m starts one job after the other itself: run it without torchrun")
    every = [_Progress(job) for job in sweep(words, config_dir)]
    for each in every:
        _check(work, each.job)
    try:
        with _noting_sigterm(work.stoppable) as stop:
            for number, each in enumerate(every, start=1):
                if not stop.asked:
                    _run(work, each, f"job {number} of {len(every)}", stop)
    finally:
        _close(work, every)
    return int(any(each.complaint is not None for each in every))


def _check(work: Work, job: SweepJob) -> None:
    try:
        check(work, job.config)
    except (ConfigError, DataError) as error:
        raise type(error)(f"job {job.label}: {error}") from None


def _run(work: Work, each: _Progress, name: str, stop: _Stop) -> None:
    sys.stdout.write(f"{name}: {each.job.label}, in {each.job.config.trainer.default_local_dir}\n")
    sys.stdout.flush()
    each.outcome = "interrupted"
    try:
        handed_in = start(work, each.job.config)
    except FlexFloorError as error:
        write_error(error)
        each.outcome, each.complaint = "failed", str(error).partition("\n")[0]
        return
    each.outcome = "stopped" if stop.asked else "done"
    if handed_in is not None:
        sys.stdout.write(f"{handed_in.text}\n")
        each.outcome = handed_in.outcome


def _close(work: Work, every: Sequence[_Progress]) -> None:
    show_table(work.name, [each.job for each in every], [each.outcome for each in every])
    for number, each in enumerate(every, start=1):
        if each.complaint is not None:
            sys.stderr.write(f"flexfloor: job {number} ({each.job.label}) failed: {each.complaint}\n")


@contextmanager
def _noting_sigterm(stoppable: bool) -> Iterator[_Stop]:
    """While the block runs, SIGTERM is noted for the sweep, and left to each job to obey."""
    stop = _Stop()
    if not stoppable or threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def note(*_: object) -> None:
        stop.asked = True

    before = signal.signal(signal.SIGTERM, note)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGTERM, before)
