"""The part `speed` of `gpu_check`: generation and one GRPO step of a random MoE, beside two rooflines.

The rooflines are measured here: a copy gives bytes a second, a product of large matrices flops a second.
A decode pass has to read the weights of all experts that its rows chose, the other weights and the cache
once, and to multiply each row with the weights that it visits; the slower of the two bounds its rate.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from gpu_parts import Result, synchronized_seconds
from gpu_references import lay_evenly
from gpu_update import grpo_step

from flexfloor import device, parallel
from flexfloor.doctor.parameters import dense_parameters, expert_parameters
from flexfloor.models.build import build_model
from flexfloor.models.config import ModelConfig
from flexfloor.rollout.config import RolloutConfig
from flexfloor.rollout.engine import RolloutEngine
from flexfloor.rollout.kv_shape import model_kv_bytes_per_token
from flexfloor.rollout.types import PassProgress, Request, Response
from flexfloor.train.optimizer import build_ddp


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """What is measured."""

    model: ModelConfig
    vocab_size: int
    prompt_tokens: int
    new_tokens: int
    batches: tuple[int, ...]
    """Responses at a time; the last is what is trained."""
    copied_bytes: int
    matrix: int
    """Rows of the square matrices that are multiplied."""


def sizes() -> dict[str, Size]:
    """By name: 0.9 billion parameters in bfloat16, and one that a CPU trains in float32."""
    full = ModelConfig(
        num_layers=16,
        hidden_size=1024,
        num_attention_heads=16,
        num_query_groups=4,
        moe_ffn_hidden_size=512,
        num_experts=32,
        moe_router_topk=4,
        dtype="bfloat16",
    )
    small = ModelConfig(num_layers=2, hidden_size=64, moe_ffn_hidden_size=96)
    return {
        "full": Size(
            model=full,
            vocab_size=32768,
            prompt_tokens=128,
            new_tokens=128,
            batches=(1, 16, 256, 64),
            copied_bytes=2**30,
            matrix=8192,
        ),
        "small": Size(
            model=small,
            vocab_size=512,
            prompt_tokens=16,
            new_tokens=24,
            batches=(1, 8),
            copied_bytes=2**25,
            matrix=512,
        ),
    }


def run(name: str) -> Iterator[Result]:
    """Rooflines, generation at each batch, and an update on what the last one generated."""
    size = sizes()[name]
    bytes_rate, flops_rate = _copy_rate(size.copied_bytes), _product_rate(size)
    rates = {"copied_GB/s": bytes_rate / 1e9, "multiplied_TFLOP/s": flops_rate / 1e12}
    yield "rooflines", bytes_rate > 0 and flops_rate > 0, rates
    parallel_groups = parallel.groups()
    model = build_model(
        size.model,
        vocab_size=size.vocab_size,
        max_sequence_length=size.prompt_tokens + size.new_tokens,
        groups=parallel_groups,
        groups_experts=True,
    )
    lay_evenly(model)
    ddp = build_ddp(model, parallel_groups)
    parameters = sum(weight.numel() for weight in model.parameters())
    yield "model", True, {"parameters": parameters, "dtype": size.model.dtype, **_held()}
    responses: Sequence[Response] = []
    for batch in size.batches:
        requests = _requests(size, batch)
        responses, figures = _generate(model, size, requests, bytes_rate, flops_rate)
        whole = sum(len(each.token_ids) for each in responses) == batch * size.new_tokens
        yield f"generation, {batch} at a time", whole, figures
    yield from grpo_step(ddp, parallel_groups, requests, responses, flops_rate, _active_parameters(size))


def _held() -> dict[str, float]:
    return {"peak_GiB": round(device.peak_memory_bytes() / 2**30, 2)}


def _copy_rate(num_bytes: int) -> float:
    """Bytes a second, read and written."""
    source = torch.zeros(num_bytes, dtype=torch.uint8, device=device.current_device())
    target = torch.empty_like(source)
    return 2 * num_bytes / _median_seconds(lambda: target.copy_(source))


def _product_rate(size: Size) -> float:
    """Flops a second in the type of the model."""
    shape, dtype = (size.matrix, size.matrix), getattr(torch, size.model.dtype)
    left = torch.randn(shape, dtype=dtype, device=device.current_device())
    return 2 * size.matrix**3 / _median_seconds(lambda: left @ left)


def _median_seconds(work: Callable[[], Any], repeats: int = 10) -> float:
    seconds = []
    for _ in range(repeats + 2):
        began = synchronized_seconds()
        work()
        seconds.append(synchronized_seconds() - began)
    return statistics.median(seconds[2:])


def _requests(size: Size, batch: int) -> list[Request]:
    """Prompts with four responses each, or one with one; all responses have the full length."""
    each = min(4, batch)
    generator = torch.Generator().manual_seed(batch)
    prompts = torch.randint(1, size.vocab_size, (batch // each, size.prompt_tokens), generator=generator)
    return [
        Request(uid=f"{number}", response_index=i, prompt_ids=tuple(ids), max_new_tokens=size.new_tokens)
        for number, ids in enumerate(prompts.tolist())
        for i in range(each)
    ]


def _generate(
    model: Any, size: Size, requests: list[Request], bytes_rate: float, flops_rate: float
) -> tuple[list[Response], dict[str, Any]]:
    batch = len(requests)
    per_token = model_kv_bytes_per_token(size.model)
    longest = size.prompt_tokens + size.new_tokens
    rollout = RolloutConfig(
        max_live_sequences=batch, kv_budget_bytes=2 * batch * longest * per_token, ignore_eos=True
    )
    engine = RolloutEngine(model, group=parallel.groups().ep, rollout=rollout, eos_id=0)
    seen: list[tuple[float, int]] = []

    def on_pass(progress: PassProgress) -> None:
        seen.append((time.perf_counter(), progress.rows))

    engine.generate(requests, seed="warm-up", on_pass=None)
    responses, stats = engine.generate(requests, seed=0, on_pass=on_pass)
    seconds = _pass_seconds(seen, batch)
    return responses, {
        "path": engine.path_name,
        "tokens/s": batch * size.new_tokens / stats.seconds,
        "decode_tokens/s": batch / seconds,
        "bytes_roofline_tokens/s": batch * bytes_rate / _bytes_of_pass(size, batch),
        "flops_roofline_tokens/s": batch * flops_rate / _flops_of_pass(size, batch),
        **_held(),
    }


def _pass_seconds(seen: Sequence[tuple[float, int]], batch: int) -> float:
    """Median of passes that decode all responses; every pass ends with tokens on the host."""
    return statistics.median(
        after - before
        for (before, rows), (after, next_rows) in pairwise(seen[1:])
        if rows == next_rows == batch
    )


def _active_parameters(size: Size) -> int:
    """That a row is multiplied with: all but the embedding's and those of experts that it does not visit."""
    model = size.model
    looked_up = 0 if model.tie_embeddings else model.hidden_size * size.vocab_size
    return (
        dense_parameters(model, size.vocab_size)
        - looked_up
        + model.moe_router_topk * expert_parameters(model)
    )


def _mean_context(size: Size) -> float:
    return size.prompt_tokens + size.new_tokens / 2


def _bytes_of_pass(size: Size, batch: int) -> float:
    """Of weights and cache, with rows that choose their experts evenly."""
    model = size.model
    share = 1 - (1 - model.moe_router_topk / model.num_experts) ** batch
    dense = dense_parameters(model, size.vocab_size) - model.hidden_size * size.vocab_size
    weights = dense + share * model.num_experts * expert_parameters(model)
    cache = batch * _mean_context(size) * model_kv_bytes_per_token(model)
    return weights * getattr(torch, model.dtype).itemsize + cache


def _flops_of_pass(size: Size, batch: int) -> float:
    model = size.model
    attention = (
        4 * _mean_context(size) * model.num_attention_heads * model.channels_per_head * model.num_layers
    )
    return batch * (2 * _active_parameters(size) + attention)
