"""Continuous batching on the training model: sequences join and leave at any pass.

All ranks of an expert group run the same passes. Before each they exchange how many rows each has;
a rank without rows takes part with none, and generation ends when nobody has rows.

Invariants:
- Tokens depend on weights, prompt, seed, uid and response index only: not on batch, order or rank.
- A prompt is prefilled once on a rank for all of its responses that are admitted while one is live.
- The cache never holds more bytes than the budget, nor than all live sequences at their greatest length.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

import torch.distributed as dist
from megatron.core.models.gpt.gpt_model import GPTModel

from flexfloor import device, heartbeat
from flexfloor.checks import require
from flexfloor.elastic.exchange import RowCounts, exchange_integers
from flexfloor.elastic.load import ExpertLoad
from flexfloor.elastic.moe_layer import moe_layers
from flexfloor.rollout.batch import LiveBatch
from flexfloor.rollout.budget import tokens_in_budget
from flexfloor.rollout.config import RolloutConfig, SamplingConfig
from flexfloor.rollout.ending import Ending
from flexfloor.rollout.fast_path import FastPath, unsupported
from flexfloor.rollout.kv_cache import KVCache
from flexfloor.rollout.kv_shape import kv_shape
from flexfloor.rollout.reference_path import ReferencePath
from flexfloor.rollout.stop import StopStrings
from flexfloor.rollout.types import PassProgress, Request, Response, RolloutStats
from flexfloor.schedule.admission import Admission
from flexfloor.schedule.prediction import LengthPredictor, greatest_length, near_future
from flexfloor.schedule.slots import Room, slot_sizes

log = logging.getLogger(__name__)

PREDICTORS = {"predicted": near_future, "reserve": greatest_length}
"""By `rollout.admission`."""


class RolloutEngine:
    """Generates responses with the model as it is at each call."""

    def __init__(
        self,
        model: GPTModel,
        *,
        group: dist.ProcessGroup,
        rollout: RolloutConfig,
        eos_id: int,
        decode: Callable[[Sequence[int]], str] | None = None,
    ):
        """Args:
        model: Megatron's `GPTModel`, not wrapped.
        group: the expert-parallel group that runs passes together.
        rollout: path, KV budget, what ends a response, and the default sampling.
        eos_id: token that ends a response, unless the rollout ignores it.
        decode: text of token ids, special tokens included; needed for stop strings only.

        Raises ConfigError for stop strings without `decode`.
        """
        self.model, self.group, self.rollout = model, group, rollout
        self.ending = _ending(rollout, eos_id, decode)
        unknown = unsupported(model) if rollout.path == "fast" else None
        if unknown and dist.get_rank() == 0:
            log.warning("rollout.path = fast: the model has %s; taking the reference path", unknown)
        self.path_name = "reference" if unknown else rollout.path

    def generate(
        self,
        requests: Sequence[Request],
        *,
        seed: int | str,
        sampling: SamplingConfig | None = None,
        on_finished: Callable[[Response], None] | None = None,
        on_pass: Callable[[PassProgress], None] | None = None,
        predict: LengthPredictor | None = None,
    ) -> tuple[list[Response], RolloutStats]:
        """Generate this rank's `requests`; every rank of the group must call, also with none.

        Args:
            requests: in the order of admission; siblings of a prompt share its prefill when adjacent.
            seed: with uid, response index and position it fixes the sampled tokens.
            sampling: instead of the rollout's own temperature, top-p and top-k.
            on_finished: called with each response as soon as it ends.
            on_pass: called after each pass with the group's progress.
            predict: a schedule's own, by which waiting requests are admitted.

        Returns: the responses in the order in which they ended, and what this rank did.

        Raises ConfigError when the KV budget does not hold one of the sequences.
        """
        was_training = self.model.training
        self.model.eval()
        try:
            batch = self._new_batch(requests, seed, sampling or self.rollout, predict)
            return self._generate(batch, on_finished, on_pass)
        finally:
            self.model.train(was_training)

    def _generate(
        self,
        batch: LiveBatch,
        on_finished: Callable[[Response], None] | None,
        on_pass: Callable[[PassProgress], None] | None,
    ) -> tuple[list[Response], RolloutStats]:
        start = time.perf_counter()
        num_experts = self.model.config.num_moe_experts
        load = ExpertLoad(len(moe_layers(self.model)), num_experts, device.current_device())
        path: FastPath | ReferencePath = ReferencePath(self.model, load)
        if self.path_name == "fast":
            path = FastPath(self.model, load, num_positions=batch.cache.longest)
        finished: list[Response] = []
        busy_seconds, passes = 0.0, 0
        while (rows := self._agree(batch, len(finished), on_pass)) is not None:
            logits = path.logits(batch.context, rows)
            passes += 1
            heartbeat.beat()
            for response in batch.advance(logits):
                finished.append(response)
                busy_seconds = time.perf_counter() - start
                if on_finished:
                    on_finished(response)
        stats = RolloutStats(
            seconds=time.perf_counter() - start,
            busy_seconds=busy_seconds,
            passes=passes,
            decoded_tokens=sum(len(response.token_ids) for response in finished),
            prefilled_tokens=batch.prefilled_tokens,
            preemptions=batch.preemptions,
            recomputed_tokens=batch.recomputed_tokens,
            peak_kv_bytes=batch.peak_kv_bytes,
            expert_load=load.counts(),
        )
        return finished, stats

    def _agree(
        self, batch: LiveBatch, num_finished: int, on_pass: Callable[[PassProgress], None] | None
    ) -> RowCounts | None:
        """Admit, then learn every rank's rows for the coming pass; None when nobody has any."""
        own_rows = batch.admit()
        told = exchange_integers([own_rows, num_finished], self.group, device.current_device())
        counts = tuple(rows for rows, _ in told)
        if on_pass:
            on_pass(PassProgress(rows=sum(counts), finished=sum(done for _, done in told)))
        if not any(counts):
            return None
        return RowCounts(group=self.group, counts=counts, own=self.group.rank())

    def _new_batch(
        self,
        requests: Sequence[Request],
        seed: int | str,
        sampling: SamplingConfig,
        predict: LengthPredictor | None,
    ) -> LiveBatch:
        config, rollout = self.model.config, self.rollout
        longest = max((len(r.prompt_ids) + r.max_new_tokens for r in requests), default=1)
        shape = kv_shape(config)
        per_token = shape.bytes_per_token(config.params_dtype.itemsize)
        fitting = tokens_in_budget(kv_budget_bytes=rollout.kv_budget_bytes, bytes_per_token=per_token)
        allowed = f"at least {per_token * longest} bytes, one sequence of {longest} tokens"
        require(fitting >= longest, "rollout.kv_budget_bytes", rollout.kv_budget_bytes, allowed)
        room = Room(sizes=slot_sizes(longest), tokens=min(fitting, rollout.max_live_sequences * longest))
        return LiveBatch(
            requests,
            KVCache(shape=shape, room=room, dtype=config.params_dtype, device=device.current_device()),
            Admission(room, predict or PREDICTORS[rollout.admission], max_live=rollout.max_live_sequences),
            seed=seed,
            sampling=sampling,
            ending=self.ending,
        )


def _ending(rollout: RolloutConfig, eos_id: int, decode: Callable[[Sequence[int]], str] | None) -> Ending:
    stop = None
    if rollout.stop:
        require(decode is not None, "rollout.stop", rollout.stop, "empty for an engine that cannot decode")
        assert decode is not None
        stop = StopStrings(rollout.stop, decode)
    return Ending(eos_id=None if rollout.ignore_eos else eos_id, stop=stop)
