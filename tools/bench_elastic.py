"""An expert group that shrinks while it generates, over the same engine with a fixed group.

64 responses with long-tailed forced lengths that the engine does not know, dealt in order; float32, one
thread a rank, all variants taking turns in one run, medians over the rounds. The headline is the guided
decision, what `elastic=on` stands for in a recipe, where an early update keeps ranks from parting: it has no
history of lengths here, and the costs of passes and shrinks that earlier rollouts of this run have shown, the
warm-up first. The simple rule, which asks for no cost, stands beside it, and in the JSON under `simple_rule`.

What it does not show: ranks with a core or an accelerator each where there are fewer cores than ranks. There
a collective also waits for the operating system's scheduler, small groups win more than they would elsewhere,
and `rank_steps`, which counts passes and no time, is the figure to trust.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist
from bench_rollout import MODELS, PROMPT_TOKENS, VOCAB_SIZE
from bench_rollout import measure as rates_over_hugging_face
from rich.console import Console
from rich.table import Table

from flexfloor.launch import run_ranks
from flexfloor.rollout.types import Request, RolloutStats

NUM_SEQUENCES, LONGEST, MEDIAN = 64, 480, 80
ELASTIC = {
    "never": {"policy": "never"},
    "guided": {"policy": "guided", "interval": 4},
    "greedy": {"policy": "greedy", "interval": 4},
    "idle": {"policy": "idle", "interval": 4},
    "detach": {"policy": "idle", "interval": 4, "detach": True},
}
"""Settings of an engine each."""
VARIANTS = {
    "fixed group": ("never", "in order"),
    "guided, with moves": ("guided", "in order"),
    "simple rule, with moves": ("greedy", "in order"),
    "simple rule, with moves, lengths known": ("greedy", "longest first"),
    "shrink, no moves": ("idle", "in order"),
    "shrink, no moves, lengths known": ("idle", "longest first"),
    "detached": ("detach", "in order"),
    "detached, lengths known": ("detach", "longest first"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One rollout of all ranks."""

    wall_s: float
    occupied_s: float
    """Sum over ranks of the time to their release, or to the end."""
    rank_steps: int
    shrink_s: float
    """The longest that a rank spent in shrinks."""
    tokens: int


def main() -> None:
    """Measure, print the table and, last, one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ranks", type=int, nargs="+", default=[4, 2])
    options = parser.parse_args()
    told: dict[str, object] = {"bench": "elastic"}
    table = Table(
        "ranks", "variant", "tokens/s", "tokens per occupied rank-second", "rank-steps", "in shrinks"
    )
    for ranks in options.ranks:
        found, overhead, copy_ratio = run_ranks(measure, ranks, options.rounds, threads_per_rank=1)[0]
        for name, runs in found.items():
            table.add_row(str(ranks), name, *_cells(runs))
        rule = compared(found["simple rule, with moves"], found["fixed group"])
        told[f"ranks{ranks}"] = {
            **compared(found["guided, with moves"], found["fixed group"]),
            "simple_rule": rule,
        }
        told.setdefault("static_overhead", overhead)
        told.setdefault("copy_ratio", copy_ratio)
    [rates] = run_ranks(rates_over_hugging_face, 1, "mixtral", [NUM_SEQUENCES], 128, 2, threads_per_rank=1)
    ours, theirs = rates[NUM_SEQUENCES]
    Console().print(table, f"the fixed engine on one rank over Hugging Face generate: {ours / theirs:.2f}")
    sys.stdout.write(json.dumps(told) + "\n")


def compared(runs: list[Run], fixed: list[Run]) -> dict[str, float]:
    """Ratios of medians over the fixed group's."""

    def ratio(figure) -> float:
        return round(statistics.median(map(figure, runs)) / statistics.median(map(figure, fixed)), 2)

    return {
        "tokens_per_occupied": ratio(lambda run: run.tokens / run.occupied_s),
        "throughput": ratio(lambda run: run.tokens / run.wall_s),
        "rank_steps": round(1 / ratio(lambda run: run.rank_steps), 2),
        "shrink_share": round(statistics.median(run.shrink_s / run.wall_s for run in runs), 4),
    }


def _cells(runs: list[Run]) -> tuple[str, ...]:
    def median(figure) -> float:
        return statistics.median(map(figure, runs))

    return (
        f"{median(lambda run: run.tokens / run.wall_s):,.0f}",
        f"{median(lambda run: run.tokens / run.occupied_s):,.0f}",
        f"{median(lambda run: run.rank_steps):,.0f}",
        f"{median(lambda run: run.shrink_s / run.wall_s):.1%}",
    )


def lengths() -> list[int]:
    """Log-normal, p90 about three times and the longest six times the median."""
    drawn = np.random.default_rng(3).normal(np.log(MEDIAN), 0.9, NUM_SEQUENCES)
    return np.clip(np.round(np.exp(drawn)), 4, LONGEST).astype(int).tolist()


def measure(rounds: int) -> tuple[dict[str, list[Run]], float, float]:
    """(runs by variant, elastic code without a shrink over fixed, a shrink's transfer over a copy)."""
    engines, costs = _engines(), new_costs(dist.get_world_size())
    found: dict[str, list[Run]] = {name: [] for name in VARIANTS}
    for turn in range(rounds + 1):
        for name, (elastic, order) in VARIANTS.items():
            run = timed(engines[elastic], lengths(), order, costs)
            if turn:
                found[name].append(run)
    even: dict[str, list[float]] = {policy: [] for policy in ("never", "greedy")}
    for turn in range(2 * rounds + 1):
        for policy, seen in even.items():
            run = timed(engines[policy], [96] * NUM_SEQUENCES, "in order")
            if turn:
                seen.append(run.wall_s)
    never, greedy = (statistics.median(seen) for seen in even.values())
    return found, round(greedy / never, 3), copy_ratio(engines["greedy"], rounds)


def _engines() -> dict:
    from flexfloor import parallel
    from flexfloor.elastic.config import ElasticConfig
    from flexfloor.elastic.ladder import make_ladder
    from flexfloor.models.build import build_model
    from flexfloor.rollout.config import RolloutConfig
    from flexfloor.rollout.engine import RolloutEngine

    parallel.initialize(ep_size=dist.get_world_size(), seed=0, timeout_seconds=600)
    groups = parallel.groups()
    sizes = {"vocab_size": VOCAB_SIZE, "max_sequence_length": PROMPT_TOKENS + LONGEST}
    model = build_model(MODELS["mixtral"], **sizes, groups=groups, seed=0)
    ladder = make_ladder(groups.ep, [], timeout_seconds=600, alone=True)
    return {
        name: RolloutEngine(
            model,
            group=groups.ep,
            rollout=RolloutConfig(ignore_eos=True),
            eos_id=0,
            elastic=ElasticConfig(**elastic),
            ladder=ladder,
        )
        for name, elastic in ELASTIC.items()
    }


def new_costs(world_size: int):
    """Of passes and shrinks, as far as they have been measured: not at all."""
    from flexfloor.schedule.fitted_cost import FittedCost
    from flexfloor.schedule.plain_cost import PlainCost

    return FittedCost(PlainCost(), range(1, world_size + 1))


def guidance(costs, requests: list[Request]):
    """Of a rollout without any history of lengths."""
    from flexfloor.rollout.guide import Guidance
    from flexfloor.schedule.history import LengthHistory
    from flexfloor.schedule.outlook import LearnedLengths

    uids = [request.uid for request in requests]
    return Guidance(
        outlook=LearnedLengths(LengthHistory(LONGEST).predict(uids), uids),
        costs=costs,
        objective="step_time",
        max_slowdown=0.0,
        rebalances=True,
        explores=costs.num_samples()["shrinks"] == 0,
    )


def learn(costs, stats: RolloutStats) -> None:
    """What rank 0 measured, on every rank."""
    costs.add_passes(stats.pass_samples)
    for each in stats.shrink_samples:
        costs.add_shrink(each.before, each.after, each.moved_tokens, each.seconds)
    costs.refit()


def timed(engine, forced: list[int], order: str, costs=None) -> Run:
    """One rollout of responses with these lengths, from which `costs` learn; all ranks call it."""
    from flexfloor.elastic.reunion import meet

    mine = own_requests(forced, order)
    guided = guidance(costs, all_requests(forced)) if engine.elastic.policy == "guided" else None
    dist.barrier()
    responses, stats = engine.generate(mine, seed=0, guidance=guided)
    meet()
    gathered: list = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, (sum(len(r.token_ids) for r in responses), stats))
    tokens, all_stats = sum(count for count, _ in gathered), [each for _, each in gathered]
    assert tokens == sum(forced), (tokens, sum(forced))
    if costs is not None:
        learn(costs, all_stats[0])
    return as_run(tokens, all_stats)


def as_run(tokens: int, stats: list[RolloutStats]) -> Run:
    """The figures of a rollout that started on all ranks at the same time."""
    return Run(
        wall_s=max(each.seconds for each in stats),
        occupied_s=sum(each.seconds for each in stats),
        rank_steps=sum(each.passes for each in stats),
        shrink_s=max(each.shrink_seconds for each in stats),
        tokens=tokens,
    )


def own_requests(forced: list[int], order: str) -> list[Request]:
    """This rank's requests: one in so many, or a block of them by length, the longest on rank 0."""
    rank, world = dist.get_rank(), dist.get_world_size()
    requests = all_requests(forced)
    if order == "in order":
        return requests[rank::world]
    longest_first = sorted(requests, key=lambda request: -(request.forced_length or 0))
    each = len(requests) // world
    return longest_first[rank * each : (rank + 1) * each]


def all_requests(forced: list[int]) -> list[Request]:
    """One with each length, in the order of the data."""
    prompts = torch.randint(
        VOCAB_SIZE, (len(forced), PROMPT_TOKENS), generator=torch.Generator().manual_seed(0)
    )
    return [
        Request(
            uid=str(index),
            response_index=0,
            prompt_ids=tuple(prompt),
            max_new_tokens=LONGEST,
            forced_length=forced[index],
        )
        for index, prompt in enumerate(prompts.tolist())
    ]


def copy_ratio(engine, rounds: int) -> float:
    """Time to move experts to half of the ranks over sending as many bytes in one piece to each."""
    from flexfloor.elastic.placement import expert_moves, home_placement, shrunk
    from flexfloor.elastic.transfer import exchange
    from flexfloor.rollout.active_group import hosted_at_home
    from flexfloor.rollout.migration import migrate

    group, half = engine.group, engine.group.size() // 2
    hosted = hosted_at_home(engine.model)
    home = home_placement(len(hosted) * group.size(), group.size())
    moves = expert_moves(home, shrunk(home, half))
    expert_bytes = sum(t.nbytes for pair in next(iter(hosted.values())) for t in pair)
    position, ours, bare = group.rank(), [], []
    for turn in range(4 * rounds + 2):
        dist.barrier()
        start = time.perf_counter()
        migrate(moves, [], hosted=hosted, leaving=[], dtype=torch.float32, group=group)
        dist.barrier()
        between = time.perf_counter()
        pieces = {(move.source, move.target): 0 for move in moves}
        for move in moves:
            pieces[move.source, move.target] += expert_bytes
        parcels = [(s, t, torch.empty(size, dtype=torch.uint8)) for (s, t), size in pieces.items()]
        exchange(
            [(t, piece) for s, t, piece in parcels if s == position],
            [(s, piece) for s, t, piece in parcels if t == position],
            group,
        )
        dist.barrier()
        if turn > 1:
            ours.append(between - start)
            bare.append(time.perf_counter() - between)
    return round(statistics.median(ours) / statistics.median(bare), 2)


if __name__ == "__main__":
    main()
