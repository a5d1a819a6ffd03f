"""What a run knows of lengths and costs, and what it plans of them for each rollout.

Invariants:
- Every rank knows the same, so that every rank plans the same for all of them.
- What was planned changes where and when a response is generated, never its tokens.
- A resumed run plans as the run would have that it goes on from; under another layout it measures anew.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch.distributed as dist

from flexfloor.config import Config
from flexfloor.data.types import Prompt
from flexfloor.parallel import Layout
from flexfloor.rollout.budget import tokens_in_budget
from flexfloor.rollout.guide import Guidance
from flexfloor.rollout.kv_shape import model_kv_bytes_per_token
from flexfloor.rollout.types import Response, RolloutStats
from flexfloor.schedule.beliefs import Beliefs
from flexfloor.schedule.fitted_cost import FittedCost
from flexfloor.schedule.forecast import Replicas, Wanted
from flexfloor.schedule.history import LengthHistory
from flexfloor.schedule.history_file import read_history, write_history
from flexfloor.schedule.objective import NO_EARLY_TRAINING, Training, early_training
from flexfloor.schedule.outlook import KnownLengths, LearnedLengths
from flexfloor.schedule.plain_cost import PlainCost
from flexfloor.schedule.plan import DEALS, IN_ORDER, plan_queues
from flexfloor.stages.cost_state import kept_state, terms_of, usable_state
from flexfloor.stages.replay import Lengths, Replay

HISTORY_FILE, COST_FILE = "history.parquet", "cost.json"
DEALS_OF = {"static": (IN_ORDER,), "longest_first": (IN_ORDER,), "flexfloor": DEALS, "oracle": DEALS}
"""By `schedule.policy`: the ways to deal that are compared."""


class Planner:
    """Learns from every training rollout."""

    def __init__(self, config: Config, layout: Layout):
        self.config, self.layout = config, layout
        self._limit = config.data.max_response_length
        self._group_size = layout.ep_size // layout.tp_size
        """Replicas of an expert group."""
        self._rungs = [*(config.elastic.rungs or range(1, self._group_size)), self._group_size]
        path, kept = config.schedule.history_path, config.schedule.history_prompts
        self.history = (
            read_history(Path(path), self._limit, kept) if path else LengthHistory(self._limit, kept)
        )
        self.costs = FittedCost(PlainCost(), self._rungs)
        forced = config.rollout.lengths_from
        self._replay = Replay(Path(forced)) if forced else None

    def forced_lengths(self, prompts: Sequence[Prompt], n: int, step: int) -> Lengths:
        """That the responses of a training step are to have; none where they end by themselves."""
        return self._replay.lengths(step, prompts, n, limit=self._limit) if self._replay else {}

    def predict(self, prompts: Sequence[Prompt]) -> Beliefs:
        """What to expect of the responses to these prompts."""
        return self.history.predict([prompt.uid for prompt in prompts])

    def deal(
        self, prompts: Sequence[Prompt], beliefs: Beliefs, n: int, forced: Lengths
    ) -> list[list[tuple[int, int]]]:
        """(index of the prompt, response index) of each replica's responses, in the order of admission."""
        policy = self.config.schedule.policy
        wanted = self._wanted(prompts, beliefs, n, forced)
        plan = plan_queues(wanted, self._replicas(), self.costs, deals=DEALS_OF[policy])
        queues = plan.queues
        if policy == "longest_first":
            expected = wanted.lengths.mean(axis=1)
            queues = tuple(queue[np.argsort(-expected[queue // n], kind="stable")] for queue in queues)
        return [[divmod(number, n) for number in queue.tolist()] for queue in queues]

    def _wanted(self, prompts: Sequence[Prompt], beliefs: Beliefs, n: int, forced: Lengths) -> Wanted:
        tokens = [len(prompt.token_ids) for prompt in prompts]
        wanted = Wanted.expected(tokens, beliefs, n=n, limit=self._limit)
        if forced and self.config.schedule.policy == "oracle":
            known = [[forced[prompt.uid, index] for index in range(n)] for prompt in prompts]
            wanted = replace(wanted, lengths=np.array(known, dtype=float))
        return wanted

    def guidance(
        self, prompts: Sequence[Prompt], beliefs: Beliefs, forced: Lengths, *, fewest_early: int | None = None
    ) -> Guidance | None:
        """For the engine; None where it needs none.

        Args:
            fewest_early: replicas of an expert group that can begin early when released; None = none can.
        """
        schedule = self.config.schedule
        plans = schedule.policy in ("flexfloor", "oracle")
        if self.config.elastic.policy != "guided" and not plans:
            return None
        knows = forced and schedule.policy == "oracle"
        learned = LearnedLengths(beliefs, [prompt.uid for prompt in prompts])
        return Guidance(
            outlook=KnownLengths(forced) if knows else learned,
            costs=self.costs,
            objective=schedule.objective,
            max_slowdown=schedule.max_slowdown,
            rebalances=plans,
            training=self._early_training(prompts, beliefs, forced, fewest_early),
            explores=self.costs.num_samples()["shrinks"] == 0,
        )

    def learn(self, responses: Sequence[Response], stats: Sequence[RolloutStats], step: int) -> None:
        """Take in a training rollout; all ranks call it with what all ranks did."""
        by_uid: dict[str, list[Response]] = {}
        for response in responses:
            by_uid.setdefault(response.uid, []).append(response)
        for uid, found in by_uid.items():
            lengths = [len(response.token_ids) for response in found]
            truncated = [response.finish_reason == "length" for response in found]
            self.history.observe(uid, lengths, truncated, step)
        # The first ranks of the expert groups stay to the end, and have seen every pass and shrink.
        stayed = stats[:: self.layout.ep_size]
        self.costs.add_alone([sample for each in stayed for sample in each.alone_samples])
        for each in stayed:
            self.costs.add_passes(each.pass_samples)
            for shrink in each.shrink_samples:
                self.costs.add_shrink(shrink.before, shrink.after, shrink.moved_tokens, shrink.seconds)
        self.costs.refit()

    def learn_training(self, rows: int, seconds: float) -> None:
        """Take in an update: rows that the first rank has trained, and its seconds; all ranks call it."""
        told = [(rows, seconds)]
        dist.broadcast_object_list(told, src=0)
        rows, seconds = told[0]
        if rows:
            self.costs.add_training(rows, seconds)
            self.costs.refit()

    def _early_training(
        self, prompts: Sequence[Prompt], beliefs: Beliefs, forced: Lengths, fewest: int | None
    ) -> Training:
        """What released ranks of an expert group could train of the first mini-batch."""
        if fewest is None or not self.costs.num_samples()["training"]:
            return NO_EARLY_TRAINING
        wanted = self._wanted(prompts, beliefs, self.config.rollout.n, forced)
        rows = (wanted.lengths + wanted.prompt_tokens[:, None]).sum(axis=1)
        first = rows[: self.config.actor.ppo_mini_batch_size]
        replicas, groups = self._group_size, self.layout.edp_size
        return early_training(first, self.costs, ranks=replicas, ep_groups=groups, least=fewest)

    def write(self, folder: Path) -> None:
        """Leave history and costs in the run's folder, for other runs and for looking at; rank 0 only."""
        if self.layout.rank == 0:
            write_history(folder / HISTORY_FILE, self.history)
            (folder / COST_FILE).write_text(json.dumps(self._kept_costs()))

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"history": self.history.state(), "costs": self._kept_costs()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """From a checkpoint."""
        kept = self.config.schedule.history_prompts
        self.history = LengthHistory.from_state(state["history"], self._limit, kept)
        costs = usable_state(state["costs"], self._terms(), tells=self.layout.rank == 0)
        self.costs = FittedCost.from_state(costs, PlainCost(), self._rungs)

    def _terms(self) -> dict[str, Any]:
        return terms_of(self.config, self.layout)

    def _kept_costs(self) -> dict[str, Any]:
        return kept_state(self.costs, self._terms())

    def _replicas(self) -> Replicas:
        rollout = self.config.rollout
        per_token = model_kv_bytes_per_token(self.config.model, self.layout.tp_size)
        return Replicas(
            count=self.layout.dp_size,
            group_size=self._group_size,
            sequences=rollout.max_live_sequences,
            kv_tokens=tokens_in_budget(kv_budget_bytes=rollout.kv_budget_bytes, bytes_per_token=per_token),
        )
