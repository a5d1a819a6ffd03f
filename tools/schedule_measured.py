"""The measured part of `bench_schedule`: policies on real CPU ranks, with forced lengths in several waves.

Lengths are log-normal, cut at ten times the median; 65 % of the variance belongs to the prompt (as in
`simulate.lengths`), so that an epoch that was generated earlier tells something. Of each rollout the engine
knows the history at most. All policies take turns in one run; each round generates an epoch of its own, and
sums over the rounds are compared. What it does not show: ranks with a core or an accelerator each where
there are fewer cores than ranks; `rank_steps` counts passes and no time. The bound is no measurement: it is
what the passes that were measured would add up to at least (`schedule_bound`).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
import torch.distributed as dist
from bench_elastic import Run, as_run
from bench_rollout import MODELS, PROMPT_TOKENS, VOCAB_SIZE
from rich.console import Console
from rich.table import Table
from schedule_bound import least_seconds

from flexfloor.rollout.guide import Guidance
from flexfloor.rollout.types import PassProgress, Request, RolloutStats
from flexfloor.schedule.beliefs import Beliefs
from flexfloor.schedule.fitted_cost import FittedCost
from flexfloor.schedule.forecast import Replicas, Wanted
from flexfloor.schedule.history import LengthHistory
from flexfloor.schedule.outlook import KnownLengths, LearnedLengths, Outlook
from flexfloor.schedule.plain_cost import PlainCost
from flexfloor.schedule.plan import DEALS, IN_ORDER, plan_queues

NUM_PROMPTS, SIBLINGS, LONGEST, MEDIAN, DEVIATION = 40, 4, 480, 48, 0.988
PROMPT_SHARE = 0.648
LIVE_TOKENS, MAX_LIVE = 2400, 16
"""Room of a rank's cache, and the most responses that it generates at a time: two in five of its own."""
INTERVAL = 4
WARM_UP = 2
"""Rounds that are not counted."""
SLOWER, TOGETHER = "flexfloor, 20 % slower allowed", "flexfloor, ranks never part"
POLICIES = ("static", "simple rule", "flexfloor", TOGETHER, SLOWER, "lengths known")
"""Those that `measure` compares."""
SHRINKS = {
    "static": "never",
    "longest first": "never",
    "simple rule": "greedy",
    "flexfloor": "guided",
    TOGETHER: "guided",
    SLOWER: "guided",
    "lengths known": "guided",
}
"""By policy: how the group shrinks."""


def objective_of(policy: str) -> dict:
    """Of `Guidance`."""
    if policy == SLOWER:
        return {"objective": "occupancy", "max_slowdown": 0.2}
    return {"objective": "step_time", "max_slowdown": 0.0}


def epoch(number: int, num_prompts: int = NUM_PROMPTS) -> np.ndarray:
    """Lengths [P, n] of one epoch; prompts stay what they are from one to the next."""
    prompts = np.random.default_rng(1).normal(0, DEVIATION * PROMPT_SHARE**0.5, (num_prompts, 1))
    each = np.random.default_rng(100 + number).normal(
        0, DEVIATION * (1 - PROMPT_SHARE) ** 0.5, (num_prompts, SIBLINGS)
    )
    return np.clip(np.round(MEDIAN * np.exp(prompts + each)), 2, LONGEST).astype(int)


class Bench:
    """Engines of one rank, and what they have learned."""

    def __init__(
        self, num_prompts: int = NUM_PROMPTS, live_tokens: int = LIVE_TOKENS, *, may_part: bool = False
    ) -> None:
        """Args:
        live_tokens: room of a rank's cache.
        may_part: whether the ranks of guided groups may part, but for the policy that forbids it.
        """
        from flexfloor import parallel
        from flexfloor.elastic.config import ElasticConfig
        from flexfloor.elastic.ladder import make_ladder
        from flexfloor.models.build import build_model
        from flexfloor.rollout.config import RolloutConfig
        from flexfloor.rollout.engine import RolloutEngine
        from flexfloor.rollout.kv_shape import model_kv_bytes_per_token

        self._may_part, world = may_part, dist.get_world_size()
        parallel.initialize(ep_size=world, seed=0, timeout_seconds=600)
        groups = parallel.groups()
        sizes = {"vocab_size": VOCAB_SIZE, "max_sequence_length": PROMPT_TOKENS + LONGEST}
        model = build_model(MODELS["mixtral"], **sizes, groups=groups, seed=0)
        rollout = RolloutConfig(
            ignore_eos=True,
            max_live_sequences=MAX_LIVE,
            kv_budget_bytes=live_tokens * model_kv_bytes_per_token(MODELS["mixtral"]),
        )
        ladder = make_ladder(groups.ep, [], timeout_seconds=600, alone=may_part)
        self.engines = {
            policy: RolloutEngine(
                model,
                group=groups.ep,
                rollout=rollout,
                eos_id=0,
                elastic=ElasticConfig(
                    policy=shrinks,
                    interval=INTERVAL,
                    detach=self.may_part(policy),
                ),
                ladder=ladder,
            )
            for policy, shrinks in SHRINKS.items()
        }
        self.costs = FittedCost(PlainCost(), range(1, world + 1))
        self.history = LengthHistory(LONGEST)
        self.uids = [str(index) for index in range(num_prompts)]
        for uid, row in zip(self.uids, epoch(0, num_prompts).tolist(), strict=True):
            self.history.observe(uid, row, [length == LONGEST for length in row], 0)
        generator = torch.Generator().manual_seed(0)
        self.prompts = torch.randint(VOCAB_SIZE, (num_prompts, PROMPT_TOKENS), generator=generator).tolist()
        self.replicas = Replicas(
            count=world, group_size=world, sequences=rollout.max_live_sequences, kv_tokens=live_tokens
        )

    def may_part(self, policy: str) -> bool:
        """Whether ranks of the policy's groups may part: `elastic.detach`, as where nothing is said."""
        return self._may_part and SHRINKS[policy] == "guided" and policy != TOGETHER

    def run(self, policy: str, forced: np.ndarray) -> Run:
        """One rollout under a policy, and what it teaches; all ranks call it."""
        stats = self.generate(policy, forced)
        self.learn(stats[0])
        return as_run(int(forced.sum()), stats)

    def queues(self, policy: str, forced: np.ndarray) -> list[list[int]]:
        """Of each rank: numbers of its responses, in the order in which they start."""
        wanted = Wanted.expected([PROMPT_TOKENS] * len(self.uids), self.beliefs(), n=SIBLINGS, limit=LONGEST)
        if policy == "lengths known":
            wanted = Wanted(prompt_tokens=wanted.prompt_tokens, lengths=forced.astype(float))
        deals = DEALS if SHRINKS[policy] == "guided" else (IN_ORDER,)
        queues = plan_queues(wanted, self.replicas, self.costs, deals=deals).queues
        if policy == "longest first":
            expected = wanted.lengths.mean(axis=1)
            queues = tuple(queue[np.argsort(-expected[queue // SIBLINGS], kind="stable")] for queue in queues)
        return [queue.tolist() for queue in queues]

    def generate(
        self, policy: str, forced: np.ndarray, on_pass: Callable[[PassProgress], None] | None = None
    ) -> list[RolloutStats]:
        """What each rank did in one rollout under a policy; all ranks call it."""
        from flexfloor.elastic.reunion import meet

        mine = [self._request(number, forced) for number in self.queues(policy, forced)[dist.get_rank()]]
        guidance = self._guidance(policy, forced)
        dist.barrier()
        responses, stats = self.engines[policy].generate(mine, seed=0, guidance=guidance, on_pass=on_pass)
        meet()
        told: list = [None] * dist.get_world_size()
        dist.all_gather_object(told, (sum(len(each.token_ids) for each in responses), stats))
        tokens = sum(count for count, _ in told)
        assert tokens == forced.sum(), (tokens, forced.sum())
        return [each for _, each in told]

    def learn(self, stats: RolloutStats) -> None:
        """Take in what the first rank has timed."""
        self.costs.add_passes(stats.pass_samples)
        self.costs.add_alone(stats.alone_samples)
        for each in stats.shrink_samples:
            self.costs.add_shrink(each.before, each.after, each.moved_tokens, each.seconds)
        self.costs.refit()

    def beliefs(self) -> Beliefs:
        """What the history says of the prompts."""
        return self.history.predict(self.uids)

    def least_seconds(self, forced: np.ndarray) -> float:
        """That an epoch can take by what passes were found to cost."""
        return least_seconds(
            int(forced.sum()),
            int(forced.max()),
            ranks=self.replicas.count,
            rows=self.replicas.sequences,
            context=PROMPT_TOKENS + float(forced.mean()) / 2,
            costs=self.costs,
        )

    def _guidance(self, policy: str, forced: np.ndarray) -> Guidance | None:
        if SHRINKS[policy] != "guided":
            return None
        outlook: Outlook = LearnedLengths(self.beliefs(), self.uids)
        if policy == "lengths known":
            known = {
                (uid, index): length
                for uid, lengths in zip(self.uids, forced.tolist(), strict=True)
                for index, length in enumerate(lengths)
            }
            outlook = KnownLengths(known)
        return Guidance(outlook=outlook, costs=self.costs, rebalances=True, **objective_of(policy))

    def _request(self, number: int, forced: np.ndarray) -> Request:
        prompt, index = divmod(number, SIBLINGS)
        return Request(
            uid=str(prompt),
            response_index=index,
            prompt_ids=tuple(self.prompts[prompt]),
            max_new_tokens=LONGEST,
            forced_length=int(forced[prompt, index]),
        )


def measure(rounds: int) -> tuple[dict[str, list[Run]], float]:
    """(runs by policy, of an epoch a round; the least seconds of all of them together); all ranks call it.

    Rounds before them warm up. Costs are learned there, too: what passes take where two, three or four ranks
    have parted is known once each was tried.
    """
    bench = Bench(may_part=True)
    found: dict[str, list[Run]] = {policy: [] for policy in POLICIES}
    for turn in range(1 - WARM_UP, rounds + 1):
        for policy in POLICIES:
            run = bench.run(policy, epoch(turn if turn > 0 else rounds + 1 - turn))
            if turn > 0:
                found[policy].append(run)
    return found, sum(bench.least_seconds(epoch(turn + 1)) for turn in range(rounds))


def show(found: dict[str, list[Run]], bound: float, ranks: int) -> None:
    """The sums as a table."""
    table = Table(
        "policy",
        "tokens/s",
        "tokens per occupied rank-second",
        "rank-steps of a round",
        "in shrinks",
        title=f"measured on {ranks} CPU ranks: {NUM_PROMPTS} prompts x {SIBLINGS} responses",
    )
    for policy, runs in found.items():
        table.add_row(
            policy,
            f"{_throughput(runs):,.0f}",
            f"{_per_occupied(runs):,.0f}",
            f"{sum(run.rank_steps for run in runs) / len(runs):,.0f}",
            f"{sum(run.shrink_s for run in runs) / sum(run.wall_s for run in runs):.1%}",
        )
    tokens = sum(run.tokens for run in found["static"])
    Console().print(
        table, f"by the measured passes no schedule can have more than {tokens / bound:,.0f} tokens/s"
    )


def compared(found: dict[str, list[Run]], bound: float) -> dict[str, float]:
    """The figures of the last line: ratios of sums over the rounds."""
    ours, rule, static = found["flexfloor"], found["simple rule"], found["static"]
    figures = {
        "tokens_per_occupied": _per_occupied(ours) / _per_occupied(static),
        "throughput": _throughput(ours) / _throughput(static),
        "throughput_over_simple_rule": _throughput(ours) / _throughput(rule),
        "tokens_per_occupied_over_simple_rule": _per_occupied(ours) / _per_occupied(rule),
        "throughput_of_known_lengths": _throughput(ours) / _throughput(found["lengths known"]),
        "together_tokens_per_occupied": _per_occupied(found[TOGETHER]) / _per_occupied(static),
        "together_throughput": _throughput(found[TOGETHER]) / _throughput(static),
        "slower_tokens_per_occupied": _per_occupied(found[SLOWER]) / _per_occupied(static),
        "slower_throughput": _throughput(found[SLOWER]) / _throughput(static),
        "bound_over_static": sum(run.wall_s for run in static) / bound,
    }
    return {name: round(figure, 2) for name, figure in figures.items()}


def _throughput(runs: list[Run]) -> float:
    return sum(run.tokens for run in runs) / sum(run.wall_s for run in runs)


def _per_occupied(runs: list[Run]) -> float:
    return sum(run.tokens for run in runs) / sum(run.occupied_s for run in runs)
