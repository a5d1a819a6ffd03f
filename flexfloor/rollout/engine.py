"""Continuous batching on the training model: sequences join and leave at any pass.

All ranks of an expert group run the same passes. Before each they exchange how many rows each has; a rank
without rows takes part with none, and generation ends when nobody has rows. With tensor parallelism the
ranks of a replica are given the same requests, and its first rank returns the responses.

Invariants:
- Tokens depend on weights, prompt, seed, uid and response index only: not on batch, order or rank.
- A prompt is prefilled once on a rank for all of its responses that are admitted while one is live.
- The cache never holds more bytes than the budget, nor than all live sequences at their greatest length.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch.distributed as dist
from megatron.core.models.gpt.gpt_model import GPTModel

from flexfloor import device
from flexfloor.checks import require
from flexfloor.elastic.config import ElasticConfig
from flexfloor.elastic.exchange import exchange_integers
from flexfloor.elastic.floor import UNLIMITED, Need
from flexfloor.elastic.ladder import Ladder
from flexfloor.elastic.load import ExpertLoad
from flexfloor.elastic.moe_layer import moe_layers
from flexfloor.elastic.replica import Replica
from flexfloor.rollout.active_group import ActiveGroup
from flexfloor.rollout.batch import LiveBatch
from flexfloor.rollout.budget import tokens_in_budget
from flexfloor.rollout.config import RolloutConfig, SamplingConfig
from flexfloor.rollout.ending import Ending
from flexfloor.rollout.fast_path import FastPath, unsupported
from flexfloor.rollout.footprint import rank_memory
from flexfloor.rollout.generation import Generation
from flexfloor.rollout.guide import Guidance, Guide
from flexfloor.rollout.kernels.choose import choose_operators
from flexfloor.rollout.kv_cache import KVCache
from flexfloor.rollout.kv_shape import kv_shape
from flexfloor.rollout.reference_path import ReferencePath
from flexfloor.rollout.releases import Releases
from flexfloor.rollout.stop import StopStrings
from flexfloor.rollout.types import PassProgress, Request, Response, RolloutStats
from flexfloor.schedule.admission import Admission
from flexfloor.schedule.frontier import Limits
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
        tp_group: dist.ProcessGroup | None = None,
        rollout: RolloutConfig,
        eos_id: int,
        elastic: ElasticConfig | None = None,
        ladder: Ladder | None = None,
        decode: Callable[[Sequence[int]], str] | None = None,
        budget_bytes: int | None = None,
        training_bytes: int = 0,
    ):
        """Args:
        model: Megatron's `GPTModel`, not wrapped.
        group: the expert-parallel group that runs passes together.
        tp_group: the ranks that the model's heads are spread over; None = this rank has all of them.
        rollout: path, KV budget, what ends a response, and the default sampling.
        eos_id: token that ends a response, unless the rollout ignores it.
        elastic: whether the group shrinks; it does not when not given.
        ladder: groups to shrink to; needed when it may.
        decode: text of token ids, special tokens included; needed for stop strings only.
        budget_bytes: that a rank may hold; not given = what its device has, without limit on a CPU.
        training_bytes: that training keeps on a rank meanwhile.

        Raises ConfigError for stop strings without `decode`.
        """
        self.model, self.group, self.rollout = model, group, rollout
        self.budget_bytes, self.training_bytes = budget_bytes, training_bytes
        self.ending = _ending(rollout, eos_id, decode)
        unknown = unsupported(model) if rollout.path == "fast" else None
        if unknown and dist.get_rank() == 0:
            log.warning("rollout.path = fast: the model has %s; taking the reference path", unknown)
        self.path_name = "reference" if unknown else rollout.path
        kernels, config = rollout.kernels if self.path_name == "fast" else "off", model.config
        self.operators = choose_operators(kernels, config.params_dtype, config.num_moe_experts)
        self.elastic = elastic or ElasticConfig()
        self.replica = Replica(tp_group)
        each = self.replica.size
        self.ladder = ladder or Ladder(position=group.rank() // each, groups={group.size() // each: group})
        assert self.ladder.replica_size == each, (self.ladder.replica_size, each)

    def generate(
        self,
        requests: Sequence[Request],
        *,
        seed: int | str,
        sampling: SamplingConfig | None = None,
        on_finished: Callable[[Response], None] | None = None,
        on_pass: Callable[[PassProgress], None] | None = None,
        on_shrink: Callable[[], AbstractContextManager[None]] = nullcontext,
        predict: LengthPredictor | None = None,
        guidance: Guidance | None = None,
        releases: Releases | None = None,
    ) -> tuple[list[Response], RolloutStats]:
        """Generate the `requests` of this rank's replica; every rank of the group must call, also with none.

        A rank that is released returns at once, with the responses that ended on it.

        Args:
            requests: in the order of admission; siblings of a prompt share its prefill when adjacent.
            seed: with uid, response index and position it fixes the sampled tokens.
            sampling: instead of the rollout's own temperature, top-p and top-k.
            on_finished: called with each response as soon as it ends, on the first rank of its replica.
            on_pass: called before each pass with the group's progress.
            on_shrink: opened around each shrink.
            predict: a schedule's own, by which waiting requests are admitted.
            guidance: a schedule's; needed where elastic.policy is guided, alike on all ranks but its outlook.
            releases: told of ranks that leave; not of those of a group that detaches.

        Returns: the responses in the order in which they ended, on the first rank of their replica, and what
        this rank did.

        Raises ConfigError when the KV budget does not hold one of the sequences, or the memory budget not
        what every rank needs.
        """
        was_training = self.model.training
        self.model.eval()
        try:
            generation = self._new_generation(
                requests, seed, sampling or self.rollout, predict, guidance, releases
            )
            return generation.run(on_finished=on_finished, on_pass=on_pass, on_shrink=on_shrink)
        finally:
            self.model.train(was_training)

    def require_memory(self, longest: int) -> None:
        """Raise `ConfigError` when a given budget does not hold what a rank needs without guests.

        Args:
            longest: tokens of the greatest sequence.
        """
        if self.budget_bytes is None:
            return
        room, num_live = self._room(longest), self.rollout.max_live_sequences
        memory = rank_memory(self.model, budget=self.budget_bytes, training=self.training_bytes)
        at_home = len(moe_layers(self.model)[0].expert_weights())
        needed = memory.needed(at_home, Need(sequences=num_live, kv_tokens=room.tokens, rows=longest))
        allowed = (
            f"at least {needed} bytes: weights and what training keeps, a KV cache of "
            f"{room.tokens * memory.kv_token} bytes, and a pass over {longest} tokens"
        )
        require(needed <= self.budget_bytes, "memory.budget_bytes", self.budget_bytes, allowed)

    def _new_generation(
        self,
        requests: Sequence[Request],
        seed: int | str,
        sampling: SamplingConfig,
        predict: LengthPredictor | None,
        guidance: Guidance | None,
        releases: Releases | None,
    ) -> Generation:
        longest, most, budget = self._longest_most_and_budget(requests)
        self.require_memory(longest)
        num_experts = self.model.config.num_moe_experts
        load = ExpertLoad(len(moe_layers(self.model)), num_experts, device.current_device())
        path: FastPath | ReferencePath = ReferencePath(self.model, load, self.replica)
        if self.path_name == "fast":
            path = FastPath(self.model, load, self.replica, self.operators, num_positions=longest)
        room = self._room(longest)
        batch = self._new_batch(requests, room, seed, sampling, predict)
        most = max(1, min(most, self.rollout.max_live_sequences))
        memory = rank_memory(self.model, budget=budget, training=self.training_bytes)
        active = ActiveGroup(
            self.model,
            self.ladder,
            self.elastic,
            sequences_per_rank=most,
            memory=memory,
            room=room,
            guide=self._guide(guidance, room),
        )
        return Generation(path, batch, active, load, self.replica, releases)

    def _guide(self, guidance: Guidance | None, room: Room) -> Guide | None:
        require(
            guidance is not None or self.elastic.policy != "guided",
            "elastic.policy",
            self.elastic.policy,
            "never, idle or greedy for a rollout without guidance",
        )
        if guidance is None:
            return None
        sequences = self.elastic.sequences_per_rank or self.rollout.max_live_sequences
        return Guide(guidance, Limits(sequences=sequences, kv_tokens=room.tokens), longest=room.sizes[-1])

    def _longest_most_and_budget(self, requests: Sequence[Request]) -> tuple[int, int, int]:
        """(tokens of the longest sequence, most requests of a rank, smallest budget) in the expert group."""
        own = max((len(r.prompt_ids) + r.max_new_tokens for r in requests), default=1)
        budget = self.budget_bytes or device.rank_memory_bytes() or UNLIMITED
        told = exchange_integers([own, len(requests), budget], self.group, device.current_device())
        longest, most, budgets = zip(*told, strict=True)
        return max(longest), max(most), min(budgets)

    def _room(self, longest: int) -> Room:
        config, rollout = self.model.config, self.rollout
        per_token = kv_shape(config).bytes_per_token(config.params_dtype.itemsize)
        fitting = tokens_in_budget(kv_budget_bytes=rollout.kv_budget_bytes, bytes_per_token=per_token)
        allowed = f"at least {per_token * longest} bytes, one sequence of {longest} tokens"
        require(fitting >= longest, "rollout.kv_budget_bytes", rollout.kv_budget_bytes, allowed)
        return Room(sizes=slot_sizes(longest), tokens=min(fitting, rollout.max_live_sequences * longest))

    def _new_batch(
        self,
        requests: Sequence[Request],
        room: Room,
        seed: int | str,
        sampling: SamplingConfig,
        predict: LengthPredictor | None,
    ) -> LiveBatch:
        config, rollout = self.model.config, self.rollout
        device_, dtype = device.current_device(), config.params_dtype
        return LiveBatch(
            requests,
            KVCache(shape=kv_shape(config), room=room, dtype=dtype, device=device_),
            Admission(room, predict or PREDICTORS[rollout.admission], max_live=rollout.max_live_sequences),
            seed=seed,
            sampling=sampling,
            ending=self.ending,
            operators=self.operators,
        )


def _ending(rollout: RolloutConfig, eos_id: int, decode: Callable[[Sequence[int]], str] | None) -> Ending:
    stop = None
    if rollout.stop:
        require(decode is not None, "rollout.stop", rollout.stop, "empty for an engine that cannot decode")
        assert decode is not None
        stop = StopStrings(rollout.stop, decode)
    return Ending(eos_id=None if rollout.ignore_eos else eos_id, stop=stop)
