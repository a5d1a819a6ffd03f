"""The GRPO step of `gpu_check`: rewards, advantages, the sampler against the trainer, two updates."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from gpu_offload import offload
from gpu_parts import Result, synchronized_seconds

from flexfloor import device
from flexfloor.rollout.types import Request, Response
from flexfloor.train.advantage import grpo_advantages
from flexfloor.train.config import ActorConfig, OptimConfig
from flexfloor.train.objective import grpo_objective
from flexfloor.train.optimizer import build_optimizer, build_scheduler
from flexfloor.train.recompute import compute_logprobs
from flexfloor.train.step import TrainStep
from flexfloor.train.types import Sample

MICRO_BATCH_TOKENS = 4096
LOGPROB_LIMIT = {"float32": 1e-4, "bfloat16": 0.05}
"""Mean |difference| of the trainer's log-probabilities from the sampler's, nats."""
TRAIN_FLOPS = 6
"""Of a row and a parameter that it visits, forward and backward."""


def grpo_step(
    ddp: Any,
    groups: Any,
    requests: Sequence[Request],
    responses: Sequence[Response],
    flops_rate: float,
    active_parameters: int,
) -> Iterator[Result]:
    """Train on the responses twice, the first update checked and the second one timed; then offload."""
    samples = _samples(requests, responses)
    found = compute_logprobs(
        ddp, samples, groups.dp_cp, micro_batch_tokens=MICRO_BATCH_TOKENS, temperature=1.0
    )
    old = np.concatenate([sample.old_logprobs for sample in samples])
    difference = float(np.abs(np.concatenate(found) - old).mean())
    step, weight = _new_step(ddp, groups, samples), next(ddp.parameters())
    before = weight.detach().double().sum().item()
    metrics = step.update(samples)
    moved = weight.detach().double().sum().item() != before
    began = synchronized_seconds()
    step.update(samples)
    seconds = synchronized_seconds() - began
    rows = sum(sample.num_rows for sample in samples)
    dtype = str(weight.dtype).removeprefix("torch.")
    is_right = difference < LOGPROB_LIMIT[dtype] and moved and math.isfinite(metrics["actor/pg_loss"])
    yield (
        "grpo step",
        bool(is_right and metrics["actor/grad_norm"] > 0),
        {
            "logprob_difference": difference,
            **{name: metrics[f"actor/{name}"] for name in ("pg_loss", "grad_norm", "ppo_kl", "entropy")},
            "trained_tokens/s": rows / seconds,
            "flops_roofline_tokens/s": flops_rate / (TRAIN_FLOPS * active_parameters),
            "peak_GiB": round(device.peak_memory_bytes() / 2**30, 2),
        },
    )
    yield offload(step.optimizer, ddp)


def _samples(requests: Sequence[Request], responses: Sequence[Response]) -> list[Sample]:
    """With the share of even tokens as the reward, which differs within every group."""
    prompts = {request.uid: request.prompt_ids for request in requests}
    ordered = sorted(responses, key=lambda each: (each.uid, each.response_index))
    rewards = [sum(token % 2 == 0 for token in each.token_ids) / len(each.token_ids) for each in ordered]
    uids, indices = [each.uid for each in ordered], [each.response_index for each in ordered]
    advantages = grpo_advantages(rewards, uids, indices)
    return [
        Sample(
            uid=each.uid,
            response_index=each.response_index,
            prompt_ids=np.array(prompts[each.uid]),
            response_ids=np.array(each.token_ids),
            old_logprobs=np.array(each.logprobs),
            advantage=float(advantage),
            reward=reward,
        )
        for each, advantage, reward in zip(ordered, advantages, rewards, strict=True)
    ]


def _new_step(ddp: Any, groups: Any, samples: Sequence[Sample]) -> TrainStep:
    actor = ActorConfig(optim=OptimConfig(lr=1e-4))
    optimizer = build_optimizer(ddp, actor.optim, groups)
    longest = max(len(sample.response_ids) for sample in samples)
    return TrainStep(
        ddp,
        optimizer,
        build_scheduler(optimizer, actor.optim),
        grpo_objective(actor, temperature=1.0, max_response_length=longest),
        groups,
        micro_batch_tokens=MICRO_BATCH_TOKENS,
    )
