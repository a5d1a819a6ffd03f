"""The router's biases on real ranks: counted over all ranks and micro-batches, moved once an update."""

import functools

import gradient_ranks as gradients
import pytest
import reference_moe as reference
import torch

from flexfloor.launch import run_ranks

RATE = 0.01


def biases_after_an_update(ep_size, tp_size, rate, budget):
    """(rows of each expert, bias of each expert) of the one layer that has experts."""
    ddp, groups = gradients.build(
        ep_size, name="deepseek_v3", tp_size=tp_size, moe_router_bias_update_rate=rate
    )
    router = ddp.module.decoder.layers[-1].mlp.router
    counts = torch.zeros(reference.EXPERTS)

    def count(module, inputs, routed):
        counts.add_(routed[1].sum(0))

    router.register_forward_hook(count)
    step = gradients.make_step(ddp, groups, gradients.make_case(budget=budget))
    step.update(gradients.as_samples(gradients.NINE, "grpo"))
    update, seen = router.expert_bias.tolist(), counts.tolist()
    gradients.recompute(ddp, groups, budget=16)
    assert router.local_tokens_per_expert.tolist() == [0.0] * reference.EXPERTS, (
        "a pass without gradient counts"
    )
    return seen, update


@functools.cache
def run(world_size, ep_size, tp_size, rate, budget):
    arguments = (ep_size, tp_size, rate, budget)
    return run_ranks(
        biases_after_an_update, world_size, *arguments, threads_per_rank=1, total_timeout_seconds=120
    )


@pytest.mark.parametrize(
    ("world_size", "ep_size", "tp_size", "budget"), [(1, 1, 1, 1000), (2, 2, 2, 16), (4, 2, 1, 1)]
)
def test_biases_move_towards_an_even_load_of_the_whole_batch(world_size, ep_size, tp_size, budget):
    ranks = run(world_size, ep_size, tp_size, RATE, budget)
    rows = sum(len(s["prompt"]) + len(s["response"]) - 1 for s in gradients.NINE)
    load = [sum(seen[expert] for seen, _ in ranks) for expert in range(reference.EXPERTS)]
    assert sum(load) == rows * reference.TOP_K
    even = sum(load) / len(load)
    for _, found in ranks:
        for expert, bias in enumerate(reference.EXPERT_BIAS):
            direction = (even > load[expert]) - (even < load[expert])
            assert found[expert] == pytest.approx(bias + RATE * direction, abs=1e-6)


def test_a_rate_of_zero_keeps_them():
    for _, found in run(2, 2, 1, 0.0, 16):
        assert found == pytest.approx(reference.EXPERT_BIAS)
