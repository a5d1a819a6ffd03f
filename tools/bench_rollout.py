"""Decode speed of the rollout engine over Hugging Face `generate`, for the same weights of each family.

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
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging as hf_logging

from flexfloor.launch import run_ranks
from flexfloor.models.config import ModelConfig

VOCAB_SIZE = 2048
PROMPT_TOKENS = 32
MODELS = {
    "mixtral": ModelConfig(
        num_layers=4,
        hidden_size=256,
        num_attention_heads=4,
        num_query_groups=2,
        moe_ffn_hidden_size=512,
        num_experts=8,
        moe_router_topk=2,
    ),
    "deepseek_v3": ModelConfig(
        family="deepseek_v3",
        num_layers=4,
        first_k_dense_replace=1,
        hidden_size=256,
        ffn_hidden_size=1024,
        num_attention_heads=4,
        q_lora_rank=128,
        kv_lora_rank=64,
        qk_nope_head_dim=64,
        qk_rope_head_dim=32,
        v_head_dim=64,
        moe_ffn_hidden_size=256,
        num_experts=16,
        num_shared_experts=1,
        moe_router_topk=4,
        moe_router_score_function="sigmoid",
        moe_router_num_groups=4,
        moe_router_group_topk=2,
        moe_router_topk_scaling_factor=2.5,
        moe_router_enable_expert_bias=True,
        norm_eps=1e-6,
    ),
}
"""About 14M parameters each."""


def main() -> None:
    """Measure, print the table and, last, one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--families", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    table = Table("family", "batch", "FlexFloor tokens/s", "Hugging Face tokens/s", "ratio")
    ratios: dict[str, dict[str, float]] = {}
    for family in options.families:
        counts = (options.batches, options.new_tokens, options.rounds)
        [rates] = run_ranks(measure, 1, family, *counts, threads_per_rank=1)
        ratios[family] = {str(batch): round(ours / theirs, 2) for batch, (ours, theirs) in rates.items()}
        for batch, (ours, theirs) in rates.items():
            table.add_row(family, str(batch), f"{ours:,.0f}", f"{theirs:,.0f}", f"{ours / theirs:.2f}")
    Console().print(table)
    first = ratios[options.families[0]]
    others = {f"ratio_over_hf_{family}": ratios[family] for family in options.families[1:]}
    sys.stdout.write(json.dumps({"bench": "rollout", "ratio_over_hf": first, **others}) + "\n")


def measure(family: str, batches: list[int], new_tokens: int, rounds: int) -> dict[int, tuple[float, float]]:
    """Median tokens/s of both sides for each batch size; runs on one rank."""
    from flexfloor import parallel
    from flexfloor.models.build import build_model
    from flexfloor.models.hugging_face import hf_config
    from flexfloor.models.registry import weight_map_of
    from flexfloor.models.weights.state_dict import hf_state_dict
    from flexfloor.rollout.config import RolloutConfig
    from flexfloor.rollout.engine import RolloutEngine

    parallel.initialize(ep_size=1, seed=0, timeout_seconds=600)
    sizes = {"vocab_size": VOCAB_SIZE, "max_sequence_length": PROMPT_TOKENS + new_tokens}
    gpt = build_model(MODELS[family], **sizes, groups=parallel.groups(), seed=0)
    hf_logging.set_verbosity_error()
    peer = AutoModelForCausalLM.from_config(hf_config(MODELS[family], **sizes)).eval()
    peer.load_state_dict(hf_state_dict(gpt, weight_map_of(MODELS[family])))
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


def theirs(peer: PreTrainedModel, prompts: torch.Tensor, new_tokens: int) -> Callable[[], int]:
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
