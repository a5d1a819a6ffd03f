"""The measured part of `bench_schedule`: policies on real CPU ranks, with forced lengths in several waves.

Lengths are log-normal, cut at ten times the median; 65 % of the variance belongs to the prompt (as in
`simulate.lengths`), so that an epoch that was generated earlier tells something. Of each rollout the engine
knows the history at most. All policies take turns in one run. What it does not show: ranks with a core or an
accelerator each where there are fewer cores than ranks; `rank_steps` counts passes and no time.
"""

from __future__ import annotations

import statistics

import numpy as np
import torch
import torch.distributed as dist
from bench_elastic import Run, as_run
from bench_rollout import MODELS, PROMPT_TOKENS, VOCAB_SIZE
from rich.console import Console
from rich.table import Table

from flexfloor.rollout.guide import Guidance
from flexfloor.rollout.types import Request
from flexfloor.schedule.fitted_cost import FittedCost
from flexfloor.schedule.forecast import Replicas, Wanted
from flexfloor.schedule.history import LengthHistory
from flexfloor.schedule.outlook import KnownLengths, LearnedLengths
from flexfloor.schedule.plain_cost import PlainCost
from flexfloor.schedule.plan import DEALS, IN_ORDER, plan_queues

NUM_PROMPTS, SIBLINGS, LONGEST, MEDIAN, DEVIATION = 40, 4, 480, 48, 0.988
PROMPT_SHARE = 0.648
LIVE_TOKENS, MAX_LIVE = 2400, 16
"""Room of a rank's cache, and the most responses that it generates at a time: two in five of its own."""
INTERVAL = 4
POLICIES = {
    "static": ("never", "step_time", 0.0),
    "simple rule": ("greedy", "step_time", 0.0),
    "flexfloor": ("guided", "step_time", 0.0),
    "flexfloor, 10 % slower allowed": ("guided", "occupancy", 0.1),
    "lengths known": ("guided", "step_time", 0.0),
}
"""By name: how the group shrinks, for which objective, at which slowdown."""


def epoch(number: int) -> np.ndarray:
    """Lengths [P, n] of one epoch; prompts stay what they are from one to the next."""
    prompts = np.random.default_rng(1).normal(0, DEVIATION * PROMPT_SHARE**0.5, (NUM_PROMPTS, 1))
    each = np.random.default_rng(100 + number).normal(
        0, DEVIATION * (1 - PROMPT_SHARE) ** 0.5, (NUM_PROMPTS, SIBLINGS)
    )
    return np.clip(np.round(MEDIAN * np.exp(prompts + each)), 2, LONGEST).astype(int)


class Bench:
    """Engines of one rank, and what they have learned."""

    def __init__(self) -> None:
        from flexfloor import parallel
        from flexfloor.elastic.config import ElasticConfig
        from flexfloor.elastic.ladder import make_ladder
        from flexfloor.models.build import build_model
        from flexfloor.rollout.config import RolloutConfig
        from flexfloor.rollout.engine import RolloutEngine
        from flexfloor.rollout.kv_shape import model_kv_bytes_per_token

        world = dist.get_world_size()
        parallel.initialize(ep_size=world, seed=0, timeout_seconds=600)
        groups = parallel.groups()
        sizes = {"vocab_size": VOCAB_SIZE, "max_sequence_length": PROMPT_TOKENS + LONGEST}
        model = build_model(MODELS["mixtral"], **sizes, groups=groups, seed=0)
        rollout = RolloutConfig(
            ignore_eos=True,
            max_live_sequences=MAX_LIVE,
            kv_budget_bytes=LIVE_TOKENS * model_kv_bytes_per_token(MODELS["mixtral"]),
        )
        ladder = make_ladder(groups.ep, [], timeout_seconds=600)
        self.engines = {
            policy: RolloutEngine(
                model,
                group=groups.ep,
                rollout=rollout,
                eos_id=0,
                elastic=ElasticConfig(policy=policy, interval=INTERVAL),
                ladder=ladder,
            )
            for policy in {shrinks for shrinks, _, _ in POLICIES.values()}
        }
        self.costs = FittedCost(PlainCost(), range(1, world + 1))
        self.history = LengthHistory(LONGEST)
        for index, row in enumerate(epoch(0).tolist()):
            self.history.observe(str(index), row, [length == LONGEST for length in row], 0)
        generator = torch.Generator().manual_seed(0)
        self.prompts = torch.randint(VOCAB_SIZE, (NUM_PROMPTS, PROMPT_TOKENS), generator=generator).tolist()
        self.replicas = Replicas(
            count=world, group_size=world, sequences=rollout.max_live_sequences, kv_tokens=LIVE_TOKENS
        )

    def run(self, policy: str, forced: np.ndarray) -> Run:
        """One rollout under a policy; all ranks call it."""
        from flexfloor.elastic.reunion import meet

        beliefs = self.history.predict([str(index) for index in range(NUM_PROMPTS)])
        wanted = Wanted.expected([PROMPT_TOKENS] * NUM_PROMPTS, beliefs, n=SIBLINGS, limit=LONGEST)
        if policy == "lengths known":
            wanted = Wanted(prompt_tokens=wanted.prompt_tokens, lengths=forced.astype(float))
        shrinks, objective, max_slowdown = POLICIES[policy]
        planned = shrinks == "guided"
        plan = plan_queues(wanted, self.replicas, self.costs, deals=DEALS if planned else (IN_ORDER,))
        mine = [self._request(number, forced) for number in plan.queues[dist.get_rank()].tolist()]
        outlook = LearnedLengths(beliefs, [str(index) for index in range(NUM_PROMPTS)])
        if policy == "lengths known":
            known = {(str(p), i): int(forced[p, i]) for p in range(NUM_PROMPTS) for i in range(SIBLINGS)}
            outlook = KnownLengths(known)
        guidance = Guidance(
            outlook=outlook, costs=self.costs, objective=objective, max_slowdown=max_slowdown, rebalances=True
        )
        dist.barrier()
        responses, stats = self.engines[shrinks].generate(
            mine, seed=0, guidance=guidance if planned else None
        )
        meet()
        told: list = [None] * dist.get_world_size()
        dist.all_gather_object(told, (sum(len(each.token_ids) for each in responses), stats))
        tokens = sum(count for count, _ in told)
        assert tokens == forced.sum(), (tokens, forced.sum())
        first = told[0][1]
        self.costs.add_passes(first.pass_samples)
        for each in first.shrink_samples:
            self.costs.add_shrink(each.before, each.after, each.moved_tokens, each.seconds)
        self.costs.refit()
        return as_run(tokens, [each for _, each in told])

    def _request(self, number: int, forced: np.ndarray) -> Request:
        prompt, index = divmod(number, SIBLINGS)
        return Request(
            uid=str(prompt),
            response_index=index,
            prompt_ids=tuple(self.prompts[prompt]),
            max_new_tokens=LONGEST,
            forced_length=int(forced[prompt, index]),
        )


def measure(rounds: int) -> dict[str, list[Run]]:
    """Runs by policy, of later epochs; all ranks call it. The first round only warms up."""
    bench = Bench()
    found: dict[str, list[Run]] = {policy: [] for policy in POLICIES}
    for turn in range(rounds + 1):
        for policy in POLICIES:
            run = bench.run(policy, epoch(1))
            if turn:
                found[policy].append(run)
    return found


def show(found: dict[str, list[Run]], ranks: int) -> None:
    """The medians as a table."""
    table = Table(
        "policy",
        "tokens/s",
        "tokens per occupied rank-second",
        "rank-steps",
        "in shrinks",
        title=f"measured on {ranks} CPU ranks: {NUM_PROMPTS} prompts x {SIBLINGS} responses",
    )

    def median(runs: list[Run], figure) -> float:
        return statistics.median(map(figure, runs))

    for policy, runs in found.items():
        table.add_row(
            policy,
            f"{median(runs, lambda run: run.tokens / run.wall_s):,.0f}",
            f"{median(runs, lambda run: run.tokens / run.occupied_s):,.0f}",
            f"{median(runs, lambda run: run.rank_steps):,.0f}",
            f"{median(runs, lambda run: run.shrink_s / run.wall_s):.1%}",
        )
    Console().print(table)


def compared(found: dict[str, list[Run]]) -> dict[str, float]:
    """The figures of the last line: ratios of medians."""

    def throughput(policy: str) -> float:
        return statistics.median(run.tokens / run.wall_s for run in found[policy])

    def per_occupied(policy: str) -> float:
        return statistics.median(run.tokens / run.occupied_s for run in found[policy])

    return {
        "tokens_per_occupied": round(per_occupied("flexfloor") / per_occupied("static"), 2),
        "throughput": round(throughput("flexfloor") / throughput("static"), 2),
        "throughput_over_simple_rule": round(throughput("flexfloor") / throughput("simple rule"), 2),
        "tokens_per_occupied_over_simple_rule": round(
            per_occupied("flexfloor") / per_occupied("simple rule"), 2
        ),
        "throughput_of_known_lengths": round(throughput("flexfloor") / throughput("lengths known"), 2),
    }
