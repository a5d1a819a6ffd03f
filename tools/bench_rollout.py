"""Decode speed of the rollout engine over Hugging Face `generate`, for the same Mixtral weights.

One rank, one thread, float32, prompts of one length, sampling at temperature 1 on both sides, every
response forced to its full length. The two take turns in one run; the ratio is that of the medians.
What it does not show: expert parallelism, and batches of uneven lengths, where continuous batching
gains and `generate` pads.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable

import torch
from rich.console import Console
from rich.table import Table
from transformers import MixtralForCausalLM
from transformers.utils import logging as hf_logging

from flexfloor.launch import run_ranks
from flexfloor.models.config import ModelConfig

VOCAB_SIZE = 2048
PROMPT_TOKENS = 32
MODEL = ModelConfig(
    num_layers=4,
    hidden_size=256,
    num_attention_heads=4,
    num_query_groups=2,
    moe_ffn_hidden_size=512,
    num_experts=8,
    moe_router_topk=2,
)


def main() -> None:
    """Measure, print the table and, last, one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    [rates] = run_ranks(measure, 1, options.batches, options.new_tokens, options.rounds, threads_per_rank=1)
    table = Table("batch", "FlexFloor tokens/s", "Hugging Face tokens/s", "ratio")
    ratios = {}
    for batch, (ours, theirs) in rates.items():
        ratios[str(batch)] = round(ours / theirs, 2)
        table.add_row(str(batch), f"{ours:,.0f}", f"{theirs:,.0f}", f"{ours / theirs:.2f}")
    Console().print(table)
    sys.stdout.write(json.dumps({"bench": "rollout", "ratio_over_hf": ratios}) + "\n")


def measure(batches: list[int], new_tokens: int, rounds: int) -> dict[int, tuple[float, float]]:
    """Median tokens/s of both sides for each batch size; runs on one rank."""
    from flexfloor import parallel
    from flexfloor.models.build import build_model
    from flexfloor.models.hugging_face import hf_config, hf_state_dict
    from flexfloor.rollout.config import RolloutConfig
    from flexfloor.rollout.engine import RolloutEngine

    parallel.initialize(ep_size=1, seed=0, timeout_seconds=600)
    longest = PROMPT_TOKENS + new_tokens
    gpt = build_model(
        MODEL, vocab_size=VOCAB_SIZE, max_sequence_length=longest, groups=parallel.groups(), seed=0
    )
    hf_logging.set_verbosity_error()
    peer = MixtralForCausalLM(hf_config(MODEL, vocab_size=VOCAB_SIZE, max_sequence_length=longest)).eval()
    peer.load_state_dict(hf_state_dict(gpt))
    engine = RolloutEngine(
        gpt,
        group=parallel.groups().ep,
        rollout=RolloutConfig(max_live_sequences=max(batches), ignore_eos=True),
        eos_id=0,
    )
    rates = {}
    for batch in batches:
        prompts = torch.randint(
            VOCAB_SIZE, (batch, PROMPT_TOKENS), generator=torch.Generator().manual_seed(batch)
        )
        sides = [ours(engine, prompts, new_tokens), theirs(peer, prompts, new_tokens)]
        rates[batch] = interleaved(sides, rounds, batch * new_tokens)
    return rates


def ours(engine, prompts: torch.Tensor, new_tokens: int) -> Callable[[], int]:
    """A call that generates with the engine and returns the number of new tokens."""
    from flexfloor.rollout.types import Request

    requests = [
        Request(uid=str(index), response_index=0, prompt_ids=tuple(ids), max_new_tokens=new_tokens)
        for index, ids in enumerate(prompts.tolist())
    ]
    return lambda: engine.generate(requests, seed=0)[1].decoded_tokens


def theirs(peer: MixtralForCausalLM, prompts: torch.Tensor, new_tokens: int) -> Callable[[], int]:
    """A call that generates with Hugging Face and returns the number of new tokens."""
    kwargs = {
        "do_sample": True,
        "top_k": 0,
        "min_new_tokens": new_tokens,
        "max_new_tokens": new_tokens,
        "attention_mask": torch.ones_like(prompts),
        "pad_token_id": 0,
    }
    return lambda: (peer.generate(prompts, **kwargs).size(1) - prompts.size(1)) * prompts.size(0)


def interleaved(sides: list[Callable[[], int]], rounds: int, expected_tokens: int) -> tuple[float, ...]:
    """Median rate of each side over `rounds` turns, after one turn of warm-up each."""
    rates: list[list[float]] = [[] for _ in sides]
    for turn in range(rounds + 1):
        for side, seen in zip(sides, rates, strict=True):
            start = time.perf_counter()
            tokens = side()
            assert tokens == expected_tokens, (tokens, expected_tokens)
            if turn:
                seen.append(tokens / (time.perf_counter() - start))
    return tuple(statistics.median(seen) for seen in rates)


if __name__ == "__main__":
    main()
