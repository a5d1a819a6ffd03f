"""One rollout on one rank, from the first pass to the end or to the rank's release.

Invariants:
- All active ranks take part in the same passes and the same shrinks.
- The ranks of a replica generate the same, and the first of them is the one that hands it out.
- A released rank takes part in no collective of its expert group any more, and a detached one in none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from statistics import fmean

from flexfloor import heartbeat
from flexfloor.elastic.exchange import RowCounts, row_counts
from flexfloor.elastic.load import ExpertLoad
from flexfloor.elastic.replica import Replica, agreed, shares
from flexfloor.rollout.active_group import ActiveGroup
from flexfloor.rollout.batch import LiveBatch
from flexfloor.rollout.fast_path import FastPath
from flexfloor.rollout.migration import Arrived
from flexfloor.rollout.pass_times import PassTimes
from flexfloor.rollout.reference_path import ReferencePath
from flexfloor.rollout.releases import Releases
from flexfloor.rollout.types import PassProgress, Response, RolloutStats, ShrinkSample
from flexfloor.schedule.shrink import Standing


class Generation:
    """Runs once."""

    def __init__(
        self,
        path: FastPath | ReferencePath,
        batch: LiveBatch,
        active: ActiveGroup,
        load: ExpertLoad,
        replica: Replica,
        releases: Releases | None = None,
    ):
        self.replica, self.releases = replica, releases
        self.path, self.batch, self.active, self.load = path, batch, active, load
        self.finished: list[Response] = []
        self.passes = self.shrinks = self.moved_sequences = self.moved_bytes = 0
        self.busy_seconds = self.shrink_seconds = 0.0
        self.start = time.perf_counter()
        self.active_ranks = [(0.0, active.num_ranks)]
        self.pass_times, self.alone_times = PassTimes(), PassTimes(fmean)
        self.shrink_samples: list[ShrinkSample] = []
        self._told: list[list[int]] = []

    def run(
        self,
        *,
        on_finished: Callable[[Response], None] | None,
        on_pass: Callable[[PassProgress], None] | None,
        on_shrink: Callable[[], AbstractContextManager[None]],
    ) -> tuple[list[Response], RolloutStats]:
        """The responses in the order in which they ended on this rank, and what it did.

        On the first rank of a replica; its others have the same ones and return none.
        """
        try:
            began = time.perf_counter()
            while not self.active.is_released and (rows := self._agree(on_pass)) is not None:
                self._pass(rows, on_finished)
                self._time_pass(time.perf_counter() - began)
                if self.releases and self.passes % self.active.elastic.interval == 0:
                    self.releases.at_interval()
                if self.active.is_due(self.passes):
                    self._decide(on_shrink)
                began = time.perf_counter()
        finally:
            self.active.close()
        return self.finished if self.replica.is_first else [], self._stats()

    def _agree(self, on_pass: Callable[[PassProgress], None] | None) -> RowCounts | None:
        """Admit, then learn every active rank's rows for the coming pass; None when nobody has any."""
        count = self.batch.admit()
        rows = self.batch.context.rows
        own = [count, len(self.finished), rows.num_joining, rows.num_attended, rows.newest_sum]
        self._told = agreed(self.active.exchange(own), self.replica.size)
        counts = [share for each in self._told for share in shares(each[0], self.replica.size)]
        if on_pass:
            on_pass(
                PassProgress(
                    rows=sum(counts),
                    finished=sum(each[1] for each in self._told) + self.active.finished_elsewhere,
                    active=self.active.num_ranks,
                    is_detached=self.active.is_detached,
                )
            )
        if not any(counts):
            return None
        return row_counts(
            self.active.placement,
            counts,
            own=self.active.group.rank(),
            group=self.active.group,
            device=self.batch.cache.device,
        )

    def _pass(self, rows: RowCounts, on_finished: Callable[[Response], None] | None) -> None:
        ended = self.batch.advance(self.path.logits(self.batch.context, rows))
        self.passes += 1
        heartbeat.beat()
        self.finished += ended
        if ended:
            self.busy_seconds = self._seconds()
            if self.active.guide:
                self.active.guide.note(ended)
        if on_finished and self.replica.is_first:
            for response in ended:
                on_finished(response)

    def _time_pass(self, seconds: float) -> None:
        rows, _, joining, context, _ = zip(*self._told, strict=True)
        times = self.alone_times if self.active.is_detached else self.pass_times
        times.note(
            ranks=self.active.num_generating,
            rows=max(each - more for each, more in zip(rows, joining, strict=True)),
            joining=max(joining),
            context=max(context),
            seconds=seconds,
        )

    def _decide(self, on_shrink: Callable[[], AbstractContextManager[None]]) -> None:
        """Shrink or detach; where neither is done, ranks with room take what waits on others."""
        standings = self.active.standings(self.batch, len(self.finished))
        if not any(standing.unfinished for standing in standings):
            return
        step = self.active.decide(standings)
        if step.size < self.active.size:
            self._shrink(step.size, standings, on_shrink)
            if step.parts and not self.active.is_released:
                standings = self.active.standings(self.batch, len(self.finished))
                if self.active.can_part(standings, step.size):
                    self._part(standings, on_shrink)
        elif step.parts:
            self._part(standings, on_shrink)
        else:
            self.moved_sequences += self.active.rebalance(standings, self.batch)

    def _shrink(
        self,
        size: int,
        standings: Sequence[Standing],
        on_shrink: Callable[[], AbstractContextManager[None]],
    ) -> None:
        load = self.load.counts().sum(axis=0).tolist()
        change = partial(self.active.shrink, size, standings, self.batch, load)
        seconds = self._become_fewer(change, on_shrink)
        self._tell_released(size)
        moved = sum(standing.live_tokens for standing in standings[size:])
        self.shrink_samples.append(
            ShrinkSample(before=len(standings), after=size, moved_tokens=moved, seconds=seconds)
        )

    def _part(
        self, standings: Sequence[Standing], on_shrink: Callable[[], AbstractContextManager[None]]
    ) -> None:
        seconds = self._become_fewer(partial(self.active.detach, standings, self.batch), on_shrink)
        self.shrink_samples.append(
            ShrinkSample(before=len(standings), after=1, moved_tokens=0, seconds=seconds)
        )

    def _tell_released(self, rung: int) -> None:
        if self.releases and not self.active.is_released:
            guide = self.active.guide
            wanted = self.releases.guests_wanted(rung, guide.seconds_left if guide else None)
            guests = self.active.exchange([wanted])[0][0]
            self.releases.released(rung, self.active.expert_load, guests)

    def _become_fewer(
        self, change: Callable[[], Arrived], on_shrink: Callable[[], AbstractContextManager[None]]
    ) -> float:
        """Seconds that the change took."""
        had_work, began = bool(self.batch.unfinished()), time.perf_counter()
        with on_shrink():
            self._take_over(change())
        seconds = time.perf_counter() - began
        self.shrinks += 1
        self.shrink_seconds += seconds
        self.active_ranks.append((self._seconds(), self.active.num_ranks))
        if self.active.is_released and had_work:
            self.busy_seconds = self._seconds()
        return seconds

    def _take_over(self, arrived: Arrived) -> None:
        if isinstance(self.path, FastPath):
            self.path.host(arrived.guests)
        elif not self.active.is_released:
            self.path.place(self.active.placement, self.active.group, arrived.guests)
        self.moved_sequences += len(arrived.sequences)
        self.moved_bytes += arrived.num_bytes

    def _seconds(self) -> float:
        return time.perf_counter() - self.start

    def _stats(self) -> RolloutStats:
        batch, counted = self.batch, int(self.replica.is_first)
        return RolloutStats(
            seconds=self._seconds(),
            busy_seconds=self.busy_seconds,
            passes=self.passes,
            decoded_tokens=batch.decoded_tokens * counted,
            prefilled_tokens=batch.prefilled_tokens * counted,
            preemptions=batch.preemptions * counted,
            recomputed_tokens=batch.recomputed_tokens * counted,
            peak_kv_bytes=batch.peak_kv_bytes,
            shrinks=self.shrinks,
            shrink_seconds=self.shrink_seconds,
            moved_sequences=self.moved_sequences * counted,
            moved_bytes=self.moved_bytes,
            is_released=self.active.is_released or self.active.is_detached,
            is_detached=self.active.is_detached,
            active_ranks=tuple(self.active_ranks),
            expert_load=self.load.counts(),
            pass_samples=self.pass_times.samples(),
            alone_samples=self.alone_times.samples(first_half=True),
            shrink_samples=tuple(self.shrink_samples),
        )
