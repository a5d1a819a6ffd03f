"""What a run leaves behind, step by step: books of every rank, metrics, pictures, console.

Every rank keeps its books; at the end of a step rank 0 gathers them, checks that they tile the step,
and writes metrics, ledger and console line.

Invariants:
- Every rank's time in a step is in exactly one state (Promise 4), checked at every step.
- Only rank 0 writes.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import torch.distributed as dist

from flexfloor import device, heartbeat
from flexfloor.config import Config
from flexfloor.ledger.balance import check_tiling, settle
from flexfloor.ledger.books import Books
from flexfloor.ledger.leases import check_leases
from flexfloor.ledger.metrics import ledger_metrics, overlap_metrics, timing_metrics
from flexfloor.ledger.pictures import LEDGER_FILE
from flexfloor.ledger.store import LedgerFile, read_ledger
from flexfloor.ledger.types import EARLY_UPDATE, State, StepRecord
from flexfloor.parallel import Layout
from flexfloor.report.write import PAGE_FILE, write_report
from flexfloor.rollout.types import PassProgress, RolloutStats
from flexfloor.stages.memory import explaining_shortage
from flexfloor.stages.progress import rollout_progress
from flexfloor.track import names
from flexfloor.track.console import make_console
from flexfloor.track.lengths import LENGTHS_FILE, LengthLog, StepLengths
from flexfloor.track.samples import SampleRow
from flexfloor.track.summary import summarize
from flexfloor.track.tracker import Tracker

GIB = 2**30


class Journal:
    """Books of this rank, and on rank 0 everything that is written."""

    def __init__(self, config: Config, layout: Layout, *, run_id: str | None = None, first_step: int = 0):
        """Args:
        run_id: of the run that is resumed; None for a new one.
        first_step: first step that will be written; later ones on disk are set aside.
        """
        trainer = config.trainer
        self.folder = Path(trainer.default_local_dir)
        self.config = config
        self.num_steps = trainer.total_training_steps
        self.layout = layout
        self.console = make_console(layout.rank, enabled="console" in trainer.logger)
        self.books = Books(layout.rank)
        self._tracker: Tracker | None = None
        if layout.rank == 0:
            self._ledger = LedgerFile(self.folder / LEDGER_FILE, first_step)
            self._lengths = LengthLog(self.folder / LENGTHS_FILE, first_step)
            with self._logging():
                self._tracker = Tracker(
                    loggers=trainer.logger,
                    project=trainer.project_name,
                    experiment=trainer.experiment_name,
                    folder=self.folder,
                    config=dataclasses.asdict(config),
                    run_id=run_id,
                    first_step=first_step,
                )
        self.run_id = _from_rank_0(self._tracker.run_id if self._tracker else None)

    @contextmanager
    def step(self, step: int) -> Iterator[dict[str, float]]:
        """Account for one step: yields the metrics to fill, and writes them when the block ends."""
        heartbeat.enter_step(step)
        dist.barrier()
        self.books.open_step(step)
        metrics: dict[str, float] = {}
        try:
            yield metrics
        except Exception:
            if self._tracker:
                with heartbeat.allow(self.config.launch.timeout_seconds):
                    self._tracker.finish(exit_code=1)
            raise
        told: list = [None] * self.layout.world_size
        dist.all_gather_object(told, (self.books.close_step(), device.peak_memory_bytes()))
        if self._tracker:
            peak_bytes = sum(peak for _, peak in told)
            with self._logging():
                self._write(self._tracker, step, [record for record, _ in told], peak_bytes, metrics)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Account for a stage of the step; a failure in it names it, and what to lower if memory ran out."""
        with heartbeat.stage(name), self.books.stage(name), explaining_shortage(name, self.config):
            yield

    def shrinking(self) -> AbstractContextManager[None]:
        """Account for a shrink within a rollout."""
        return self.books.state(State.SHRINKING)

    def leased(self, ranks: Sequence[int]) -> AbstractContextManager[None]:
        """Account for this rank's part in a lease of released ranks to the early update."""
        return self.books.lease(EARLY_UPDATE, ranks)

    def waiting(self) -> AbstractContextManager[None]:
        """Account for a wait within a lease, for something to train."""
        return self.books.state(State.WAITING)

    def generated(self, stats: RolloutStats) -> None:
        """This rank has generated, or left; its own responses were done after `stats.busy_seconds`."""
        self.books.mark_idle(time.perf_counter() - (stats.seconds - stats.busy_seconds))
        if stats.is_released:
            self.books.release()

    def rollout_progress(
        self, name: str, total: int
    ) -> AbstractContextManager[Callable[[PassProgress], None]]:
        """Show the progress of `total` responses; yields what the engine calls before a pass."""
        return rollout_progress(self.console, self.layout, name, total)

    def lengths(self, step: int, lengths: StepLengths) -> None:
        """Keep how long the responses of a training step became, and what was predicted."""
        if self._tracker:
            self._lengths.write(step, lengths)

    def samples(self, rows: Sequence[SampleRow], step: int) -> None:
        """Show and log a table of validation samples."""
        if self._tracker:
            self.console.samples(rows, f"validation samples at step {step}")
            self._tracker.log_samples(rows, step)

    def draw(self, step: int) -> None:
        """Write picture, trace and page of the run so far, and log the picture."""
        if not self._tracker:
            return
        with self._logging():
            steps = read_ledger(self.folder / LEDGER_FILE)
            picture = write_report(self.folder, steps, self._tracker.history(), self.run_id)
            self._tracker.log_image("timeline", picture, step)

    def finish(self) -> None:
        """Show the closing table and close the logs."""
        if self._tracker:
            self.console.summary(summarize(self._tracker.history()))
            self.console.line(f"metrics, picture, trace and {PAGE_FILE}: {self.folder}")
            self._ledger.close()
            self._lengths.close()
            with self._logging():
                self._tracker.finish()

    @contextmanager
    def _logging(self) -> Iterator[None]:
        """W&B may wait for its server, and only rank 0 logs."""
        with heartbeat.stage("logging"), heartbeat.allow(self.config.launch.timeout_seconds):
            yield

    def _write(
        self,
        tracker: Tracker,
        step: int,
        records: list[StepRecord],
        peak_bytes: int,
        metrics: Mapping[str, float],
    ) -> None:
        settled = settle(records)
        check_tiling(settled)
        check_leases(settled)
        tokens = int(metrics.get("perf/response_tokens", 0))
        timings = timing_metrics(settled)
        logged = {
            **metrics,
            **ledger_metrics(settled, tokens),
            **overlap_metrics(settled),
            **timings,
            "perf/time_per_step": timings["timing_s/step"],
            names.PEAK_MEMORY: peak_bytes / GIB,
        }
        if "perf/total_num_tokens" in metrics:
            rank_seconds = timings["timing_s/step"] * self.layout.world_size
            logged["perf/throughput"] = metrics["perf/total_num_tokens"] / rank_seconds
        self._ledger.append(settled)
        tracker.log(logged, step)
        self.console.step(step, self.num_steps, logged)


def _from_rank_0(value: str | None) -> str:
    box = [value]
    dist.broadcast_object_list(box, src=0)
    assert box[0] is not None
    return box[0]
