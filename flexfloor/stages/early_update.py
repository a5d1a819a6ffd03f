"""The update begins on released ranks while the others still generate.

Ranks that generate write down what has its score; the last position of each expert group, which is the
first to be released, says what its lease does next; whoever is released does as it says. Nobody waits for
a rank that generates, and no such rank for one that trains: what they tell each other goes through logs.

Invariants:
- A lease is opened only if its ranks have the memory for what they are to hold.
- A lease ends within one micro-batch after the last expert group has generated everything.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from torch.distributed import get_process_group_ranks

from flexfloor import device, heartbeat
from flexfloor.data.types import Prompt
from flexfloor.elastic.floor import UNLIMITED
from flexfloor.journal import Journal
from flexfloor.ledger.types import EARLY_UPDATE
from flexfloor.overlap.complete import CompleteGroups
from flexfloor.overlap.config import is_wanted, obstacle
from flexfloor.overlap.duty import Account, Duty
from flexfloor.overlap.event_log import EventLog
from flexfloor.overlap.events import Ended, Posted, Scored, Shrunk
from flexfloor.overlap.footprint import lease_memory
from flexfloor.overlap.foreman import Foreman
from flexfloor.overlap.lease import Lease
from flexfloor.overlap.lease_experts import LeaseExperts
from flexfloor.overlap.message_store import message_store
from flexfloor.overlap.openings import Openings
from flexfloor.overlap.pays import loss
from flexfloor.overlap.result import EarlyResult
from flexfloor.reward.types import RewardResult
from flexfloor.rollout.types import Response, RolloutStats
from flexfloor.stages.early_samples import EarlySamples
from flexfloor.stages.memory import explaining_shortage
from flexfloor.train.early_part import EarlyPart
from flexfloor.train.reference import ReferenceWeights
from flexfloor.train.step import TrainStep
from flexfloor.train.types import Key, Sample
from flexfloor.worker import Worker

log = logging.getLogger(__name__)

Scores = Callable[[], dict[Key, RewardResult]]
"""What has been scored since the last call."""


class EarlyTraining:
    """What the steps of a run share."""

    def __init__(self, worker: Worker, train_step: TrainStep, reference: ReferenceWeights | None):
        self.worker, self.train_step = worker, train_step
        self.experts = LeaseExperts(worker.model, worker.engine.ladder, reference)
        self.has_reference = reference is not None
        self._has_told = False
        self.store = message_store(worker.config.launch.timeout_seconds)

    def openings(self) -> Openings:
        """Leases that an expert group may open in this step."""
        config, engine = self.worker.config, self.worker.engine
        return Openings(
            num_experts=config.model.num_experts,
            rungs=engine.ladder.rungs,
            num_replicas=engine.ladder.size,
            replica_size=engine.ladder.replica_size,
            memory=lease_memory(
                self.worker.model,
                config.model,
                budget=engine.budget_bytes or device.rank_memory_bytes() or UNLIMITED,
                training=engine.training_bytes,
                rows=config.overlap.rows(config.actor.micro_batch_tokens),
                recompute=config.actor.recompute,
                has_reference=self.has_reference,
            ),
        )

    def tell_obstacle(self, reason: str) -> None:
        """Say once in a run why released ranks have been left waiting, if they have."""
        if reason and not self._has_told and self.worker.layout.rank == 0:
            self._has_told = True
            log.warning("overlap.mode = %s: ranks wait: %s", self.worker.config.overlap.mode, reason)

    def begin(self, prompts: Sequence[Prompt], journal: Journal, step: int) -> EarlyUpdate:
        """For the rollout of a step."""
        return EarlyUpdate(self, prompts, journal, step)


def train_early(
    worker: Worker, train_step: TrainStep, reference: ReferenceWeights | None
) -> EarlyTraining | None:
    """As `overlap.mode` asks for it; all ranks call it."""
    config = worker.config
    parallel = config.parallel
    if is_wanted(config.overlap, config.elastic, parallel.ep, parallel.tp):
        return EarlyTraining(worker, train_step, reference)
    if config.overlap.mode == "auto" and worker.layout.rank == 0:
        reason = obstacle(config.elastic, parallel.ep, parallel.tp)
        log.warning("overlap.mode = auto: off, for %s", reason)
    return None


class EarlyUpdate:
    """Of one step on one rank; the engine tells it of shrinks (`rollout.releases.Releases`)."""

    def __init__(self, training: EarlyTraining, prompts: Sequence[Prompt], journal: Journal, step: int):
        worker = training.worker
        self._training, self._worker = training, worker
        self._layout, self._journal, self._experts = worker.layout, journal, training.experts
        self._ladder = worker.engine.ladder
        place = {"ep_index": worker.layout.ep_index, "num_ep_groups": worker.layout.edp_size}
        self._place, self._samples = place, EarlySamples(worker.config, prompts, **place)
        self._num_responses = worker.config.rollout.n
        self._round_tokens = worker.config.overlap.rows(worker.config.actor.micro_batch_tokens)
        name = f"flexfloor/early_update/{step}"
        self._log = EventLog(training.store, f"{name}/rollout")
        self._orders = EventLog(training.store, f"{name}/orders/{worker.layout.ep_index}")
        self._lease = Lease(
            training.experts, self._ladder, training.train_step, round_tokens=self._round_tokens
        )
        self._openings, self._is_open = training.openings(), False
        self._finished: dict[Key, Response] = {}
        self._scores: Scores = dict
        self._compared: dict[Key, Sample] = {}

    def listen(self, scores: Scores) -> None:
        """Take scores from here."""
        self._scores = scores

    def finished(self, response: Response) -> None:
        """A response has ended on this rank."""
        self._finished[response.uid, response.response_index] = response

    def at_interval(self) -> None:
        """Write down what has been scored since the last time."""
        if scored := self._scores():
            told = tuple(self._scored(key, result.score) for key, result in scored.items())
            self._log.write(Posted(responses=told))

    @property
    def fewest(self) -> int | None:
        """Released replicas that have the memory for a lease between them; None if no rung releases them."""
        return self._openings.fewest

    def guests_wanted(self, rung: int, seconds_left: float | None) -> int:
        """How many each released rank can hold, if they become a lease now: with the memory for all that come
        and likely to save time; else 0.
        """
        if self._is_open:
            return 0
        reason = self._openings.shortage(rung) or self._loss(rung, seconds_left)
        self._training.tell_obstacle(reason)
        return 0 if reason else self._openings.hostable_guests

    def _loss(self, rung: int, seconds_left: float | None) -> str:
        if self._worker.config.overlap.mode != "auto":
            return ""
        return loss(
            self._worker.planner.costs,
            num_replicas=self._ladder.size,
            rung=rung,
            round_tokens=self._round_tokens,
            seconds_left=seconds_left,
        )

    def released(self, rung: int, expert_load: Sequence[int], guests: int) -> None:
        """Tell it to those that wait; send them experts if they become a lease."""
        opened = None
        if guests:
            opened = self._openings.placement(rung, expert_load, guests=guests)
            self._experts.lend(opened)
            self._is_open = True
        if self._layout.ep_rank == 0:
            self._log.write(Shrunk(ep_index=self._layout.ep_index, rung=rung, opened=opened))

    def generated(self, stats: RolloutStats) -> None:
        """This rank has generated, or was released: then train until all others have generated too."""
        if stats.is_released:
            with heartbeat.stage(EARLY_UPDATE), explaining_shortage(EARLY_UPDATE, self._worker.config):
                self._duty().do(self._foreman(), lambda foreman: foreman.note(self._log.read()))
        elif self._layout.ep_rank == 0:
            self._log.write(Ended(ep_index=self._layout.ep_index))

    def met(self) -> None:
        """All ranks have met: nobody needs this rank's weights for a lease any more."""
        self._experts.arrived()

    def told(self) -> EarlyResult:
        """Of this rank's lease, told by one of its ranks."""
        if not self._gives_orders:
            return EarlyResult()
        return EarlyResult(trained=frozenset(self._lease.trained), compared=self._compared)

    def close(self) -> None:
        """All ranks have met: nobody reads any more."""
        self._log.clear()
        self._orders.clear()

    def part(self, result: EarlyResult) -> EarlyPart:
        """For the update of the first mini-batch.

        Args:
            result: of all ranks.
        """
        return self._lease.part(result.trained)

    @property
    def _gives_orders(self) -> bool:
        return self._layout.ep_rank == self._layout.ep_size - 1

    def _foreman(self) -> Foreman | None:
        if not self._gives_orders:
            return None
        return Foreman(
            CompleteGroups(self._samples.uids, self._num_responses),
            self._samples.of_group,
            **self._place,
            ep_size=self._layout.ep_size,
            replica_size=self._ladder.replica_size,
            round_tokens=self._round_tokens,
            compares=self._samples.compares,
        )

    def _duty(self) -> Duty:
        return Duty(
            self._ladder.position,
            self._ladder.size,
            orders=self._orders,
            lease=self._lease,
            compare=self._compare,
            account=Account(
                leased=lambda rung: self._journal.leased(
                    get_process_group_ranks(self._ladder.suffixes[rung])
                ),
                waiting=self._journal.waiting,
            ),
            post=self.at_interval,
        )

    def _compare(self, samples: Sequence[Sample]) -> list[Sample]:
        recomputes, has_reference = self._samples.recomputes, self._samples.has_reference
        found = self._lease.compare(samples, recomputes=recomputes, has_reference=has_reference)
        self._compared |= {sample.key: sample for sample in found}
        return self._samples.with_advantages(found)

    def _scored(self, key: Key, score: float) -> Scored:
        response = self._finished[key]
        return Scored(
            uid=response.uid,
            response_index=response.response_index,
            token_ids=response.token_ids,
            logprobs=response.logprobs,
            score=score,
        )
