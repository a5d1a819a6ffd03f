"""Scoring off the critical path: responses are handed in as they finish and collected at the end.

Threads score while generation goes on. They are daemons, because a reward function that hangs cannot
be stopped and must not keep the process alive.

Invariants:
- What `collect` returns or raises does not depend on the order in which responses were scored.
- A failure is the first one by (uid, response index), and the other responses keep their scores.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from dataclasses import dataclass

from flexfloor import heartbeat
from flexfloor.data.types import Prompt
from flexfloor.errors import RewardError
from flexfloor.reward.types import RewardResult, Scorer, as_result

logger = logging.getLogger(__name__)

_PATIENCE_SECONDS = 30.0
"""Wait for a result after which a warning names what is waited for."""

Key = tuple[str, int]
"""(uid, response index)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    prompt: Prompt
    response_index: int
    response_text: str
    finish_reason: str

    @property
    def key(self) -> Key:
        return self.prompt.uid, self.response_index

    def __str__(self) -> str:
        return f"{self.prompt.data_source}, prompt {self.prompt.uid}, response {self.response_index}"


class RewardPool:
    """Threads that score responses.

    Args:
        scorer: called from `num_workers` threads at once.
        num_workers: threads.
        timeout_seconds: longest wait of `collect` for the next result.
    """

    def __init__(self, scorer: Scorer, *, num_workers: int = 1, timeout_seconds: float = 300.0):
        self._scorer = scorer
        self._timeout_seconds = timeout_seconds
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._outcomes: queue.SimpleQueue[tuple[_Job, RewardResult | Exception]] = queue.SimpleQueue()
        self._waiting: dict[Key, _Job] = {}
        self._results: dict[Key, RewardResult] = {}
        self._told: set[Key] = set()
        """Results that `newly_scored` has returned."""
        self._failures: dict[Key, tuple[_Job, Exception]] = {}
        self._workers = [threading.Thread(target=self._work, daemon=True) for _ in range(num_workers)]
        for worker in self._workers:
            worker.start()

    def submit(self, prompt: Prompt, response_index: int, response_text: str, finish_reason: str) -> None:
        """Have a response scored; returns at once."""
        job = _Job(
            prompt=prompt,
            response_index=response_index,
            response_text=response_text,
            finish_reason=finish_reason,
        )
        known = job.key in self._waiting or job.key in self._results or job.key in self._failures
        assert not known, f"{job} is submitted twice"
        self._waiting[job.key] = job
        self._jobs.put(job)

    @property
    def num_pending(self) -> int:
        """Responses that were submitted and are not scored yet."""
        self._drain()
        return len(self._waiting)

    def scored(self) -> dict[Key, RewardResult]:
        """The results so far, also after a failure; they stay until `collect` succeeds."""
        self._drain()
        return dict(sorted(self._results.items()))

    def newly_scored(self) -> dict[Key, RewardResult]:
        """The results that no earlier call has returned; they stay for `collect`."""
        self._drain()
        new = {key: result for key, result in self._results.items() if key not in self._told}
        self._told.update(new)
        return new

    def collect(self) -> dict[Key, RewardResult]:
        """Wait for all submitted responses and hand out their results, which the pool then forgets.

        Raises:
            RewardError: the scorer raised or returned no finite number, with its exception chained;
                or no result came within the time-out.
        """
        with heartbeat.allow(self._timeout_seconds):
            while self._waiting:
                self._settle(*self._next_outcome())
                heartbeat.beat()
        if self._failures:
            job, error = min(self._failures.values(), key=lambda failure: failure[0].key)
            raise RewardError(f"reward of {job}: {type(error).__name__}: {error}") from error
        results, self._results, self._told = self.scored(), {}, set()
        return results

    def close(self) -> None:
        """Let the threads end once what was submitted is scored."""
        for _ in self._workers:
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._outcomes.put((job, self._outcome(job)))

    def _outcome(self, job: _Job) -> RewardResult | Exception:
        try:
            return as_result(self._scorer(job.prompt, job.response_text, job.finish_reason))
        except Exception as error:  # noqa: BLE001 (a user's function may raise anything; collect raises it)
            return error

    def _next_outcome(self) -> tuple[_Job, RewardResult | Exception]:
        patience = min(_PATIENCE_SECONDS, self._timeout_seconds)
        with contextlib.suppress(queue.Empty):
            return self._outcomes.get(timeout=patience)
        if patience < self._timeout_seconds:
            logger.warning("%s", self._late(patience))
            with contextlib.suppress(queue.Empty):
                return self._outcomes.get(timeout=self._timeout_seconds - patience)
        raise RewardError(self._late(self._timeout_seconds))

    def _drain(self) -> None:
        while not self._outcomes.empty():
            self._settle(*self._outcomes.get_nowait())

    def _settle(self, job: _Job, outcome: RewardResult | Exception) -> None:
        del self._waiting[job.key]
        if isinstance(outcome, RewardResult):
            self._results[job.key] = outcome
        else:
            self._failures[job.key] = (job, outcome)

    def _late(self, seconds: float) -> str:
        job = next(iter(self._waiting.values()))
        return (
            f"reward of {job}: no result within {seconds:g} seconds "
            f"(reward.timeout_seconds = {self._timeout_seconds:g}), {len(self._waiting)} responses wait"
        )
