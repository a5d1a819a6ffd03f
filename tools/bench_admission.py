"""Throughput of a rollout of skewed lengths in a tight KV budget: admission by prediction over reservation.

One rank, one thread, float32, the model of `bench_rollout`. Lengths are drawn log-normally once (median 80,
at most 512), forced, and unknown to the admission, which knows only that a response may have 512 tokens. The
budget holds a few sequences of that length. Three ways of admission take turns: `predicted`, `reserve`, and
by the present need alone, as servers do that admit whatever fits now. Throughput is new tokens over the
median wall time.
What it does not show: accelerators, where a decode row costs next to nothing and a fuller batch gains more.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
from bench_rollout import MODELS, PROMPT_TOKENS, VOCAB_SIZE
from rich.console import Console
from rich.table import Table

from flexfloor.launch import run_ranks
from flexfloor.rollout.types import Request, RolloutStats

MAX_NEW_TOKENS = 512
PRESENT = "present need"
MODEL = MODELS["mixtral"]
WAYS = ("predicted", "reserve", PRESENT)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One way of admission."""

    tokens_per_second: float
    stats: RolloutStats


def main() -> None:
    """Measure, print the table and, last, one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--responses", type=int, default=96)
    parser.add_argument("--longest-in-budget", type=int, default=6, help="sequences of the greatest length")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    [found] = run_ranks(
        measure, 1, options.responses, options.longest_in_budget, options.rounds, threads_per_rank=1
    )
    table = Table("admission", "tokens/s", "over reserve", "passes", "preempted", "recomputed", "peak MiB")
    reserve = found["reserve"].tokens_per_second
    for way, measured in found.items():
        rate, stats = measured.tokens_per_second, measured.stats
        figures = (stats.passes, stats.preemptions, stats.recomputed_tokens)
        peak = f"{stats.peak_kv_bytes / 2**20:.1f}"
        table.add_row(way, f"{rate:,.0f}", f"{rate / reserve:.2f}", *(f"{n:,}" for n in figures), peak)
    Console().print(table)
    ratio = round(found["predicted"].tokens_per_second / reserve, 2)
    sys.stdout.write(json.dumps({"bench": "admission", "throughput_over_reserve": ratio}) + "\n")


def measure(num_responses: int, longest_in_budget: int, rounds: int) -> dict[str, Measured]:
    """Each way's throughput and statistics, after a short turn of warm-up; runs on one rank."""
    wanted = requests(num_responses)
    tokens = sum(request.forced_length or 0 for request in wanted)
    generate = generator(longest_in_budget)
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    stats = {way: generate(way, wanted[:8]) for way in WAYS}
    for _ in range(rounds):
        for way in WAYS:
            start = time.perf_counter()
            stats[way] = generate(way, wanted)
            seconds[way].append(time.perf_counter() - start)
            assert stats[way].decoded_tokens == tokens, (way, stats[way].decoded_tokens, tokens)
    return {
        way: Measured(tokens_per_second=tokens / statistics.median(seconds[way]), stats=stats[way])
        for way in WAYS
    }


def requests(num_responses: int) -> list[Request]:
    """Prompts of one length and responses of skewed forced lengths, the same at every call."""
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.lognormal(np.log(80), 0.9, num_responses), 1, MAX_NEW_TOKENS).astype(int)
    prompts = rng.integers(VOCAB_SIZE, size=(num_responses, PROMPT_TOKENS))
    return [
        Request(
            uid=str(index),
            response_index=0,
            prompt_ids=tuple(prompt.tolist()),
            max_new_tokens=MAX_NEW_TOKENS,
            forced_length=int(length),
        )
        for index, (length, prompt) in enumerate(zip(lengths, prompts, strict=True))
    ]


def generator(longest_in_budget: int) -> Callable[[str, list[Request]], RolloutStats]:
    """A call that generates in one of the ways, with one model for all."""
    from flexfloor import parallel
    from flexfloor.models.build import build_model
    from flexfloor.rollout.config import RolloutConfig
    from flexfloor.rollout.engine import RolloutEngine
    from flexfloor.rollout.kv_shape import model_kv_bytes_per_token

    parallel.initialize(ep_size=1, seed=0, timeout_seconds=600)
    longest = PROMPT_TOKENS + MAX_NEW_TOKENS
    gpt = build_model(
        MODEL, vocab_size=VOCAB_SIZE, max_sequence_length=longest, groups=parallel.groups(), seed=0
    )
    budget = longest_in_budget * longest * model_kv_bytes_per_token(MODEL)

    def generate(way: str, wanted: list[Request]) -> RolloutStats:
        admission, predict = ("predicted", present_need) if way == PRESENT else (way, None)
        rollout = RolloutConfig(kv_budget_bytes=budget, admission=admission)
        engine = RolloutEngine(gpt, group=parallel.groups().ep, rollout=rollout, eos_id=0)
        return engine.generate(wanted, seed=0, predict=predict)[1]

    return generate


def present_need(uid: str, num_tokens: int, max_new_tokens: int) -> int:
    """The coming token is the last one, as far as admission is concerned."""
    return num_tokens + 1


if __name__ == "__main__":
    main()
