"""What `test_grouped_experts` runs on its ranks: the same work with experts one by one and in groups."""

import early_ranks
import gradient_ranks
import pytest
import rollout_ranks
import torch

from flexfloor import device, parallel

CASES = {"many": gradient_ranks.NINE, "one row": gradient_ranks.CASES["one row"]["samples"]}
GREEDY = {"policy": "greedy", "interval": 1}
WAYS = {
    "fixed": {},
    "every rung": {"elastic": GREEDY},
    "every rung, reference path": {"elastic": GREEDY, "path": "reference"},
    "detached": {"elastic": {"policy": "idle", "interval": 2, "detach": True}},
}


def group_experts(wanted):
    """Let models that are built from now on compute their experts in groups, as on a GPU."""
    device.has_grouped_products = lambda: wanted


def build(ep_size, dtype, name, *, evenly):
    """(ddp, groups); with `evenly` in the buffers of Megatron's distributed optimizer, as on a GPU."""
    from flexfloor.train import optimizer

    wrapped = optimizer.DistributedDataParallelConfig

    def config(**fields):
        return wrapped(**fields | {"use_distributed_optimizer": evenly})

    optimizer.DistributedDataParallelConfig = config
    try:
        return gradient_ranks.build(ep_size, dtype, name)
    finally:
        optimizer.DistributedDataParallelConfig = wrapped


def sums_of_gradients(ep_size, dtype, name):
    """By layout of experts: weights, whether they are even, and by case this rank's own sums of gradients."""
    found = {}
    for layout, grouped, evenly in (
        ("one by one", False, False),
        ("groups", True, True),
        ("groups of one", True, False),
    ):
        group_experts(grouped)
        ddp, groups = build(ep_size, dtype, name, evenly=evenly)
        found[layout] = {
            "weights": gradient_ranks.named(ddp, lambda p: p),
            "kinds": sorted({type(layer.experts).__name__ for layer in _layers(ddp)}),
            "shards": _shards(ddp),
            "groups": [_group_sizes(layer) for layer in _layers(ddp)],
            **{case: _sums(ddp, groups, samples) for case, samples in CASES.items()},
        }
        parallel.destroy()
    return found


def _shards(ddp):
    """What a checkpoint calls each tensor, and which part of it this rank has."""
    found = ddp.module.sharded_state_dict()
    return {
        name: (each.key, each.global_shape, each.global_offset, each.replica_id)
        for name, each in found.items()
        if hasattr(each, "global_offset")
    } | {name: each.key for name, each in found.items() if hasattr(each, "build_fn")}


def _layers(ddp):
    from flexfloor.elastic.moe_layer import moe_layers

    return moe_layers(ddp)


def _group_sizes(layer):
    """Of both products: how many experts each group has, and whether a bank copies nothing."""
    from flexfloor.elastic.expert_banks import is_even
    from flexfloor.elastic.grouped_product import even_groups

    weights = layer.expert_weights()
    by_product = zip(*weights.values(), strict=True)
    return [[len(group) for group in even_groups(each)] for each in by_product], is_even(weights)


def _sums(ddp, groups, samples):
    from flexfloor.train.batch import pack
    from flexfloor.train.forward import forward_logprobs

    rank, size = groups.ep.rank(), groups.ep.size()
    mine = gradient_ranks.as_samples(samples, "grpo")[rank::size]
    ddp.zero_grad_buffer()
    batch = pack(mine, "token-mean", torch.device("cpu"))
    logprobs, _ = forward_logprobs(ddp, batch, 1.0)
    (logprobs * torch.arange(1, 1 + len(logprobs))).sum().backward()
    return gradient_ranks.named(ddp, lambda p: p.main_grad)


def tokens_by_way(ep_size, dtype, name):
    """Responses and statistics by way, experts in groups; and those of the fixed group one by one."""
    from flexfloor.elastic.ladder import make_ladder

    group_experts(False)
    model = rollout_ranks.new_model(ep_size, dtype, name)
    usual = {"path": "fast", "deal": "by response"}
    found = {"one by one": rollout_ranks.generate(model, **usual)}
    parallel.destroy()
    group_experts(True)
    model = rollout_ranks.new_model(ep_size, dtype, name)
    ladder = make_ladder(parallel.groups().ep, [], timeout_seconds=60, alone=True)
    for way, how in WAYS.items():
        found[way] = rollout_ranks.generate(model, ladder=ladder, **usual | how)
    return found


def early_pair(folder):
    """A step of the recipe without an early update and experts one by one; the same with both."""
    found = []
    for grouped, overlap, releases in ((False, "off", ()), (True, "on", (1,))):
        group_experts(grouped)
        words = ("parallel.ep=2", "trainer.total_training_steps=1", f"overlap={overlap}")
        case = early_ranks.Case(words=words, releases=releases)
        found += early_ranks.run_cases([case], f"{folder}/{overlap}")
    return found


def require_same_tokens(found, tolerance):
    """Of `tokens_by_way`: each way has those of experts one by one, and leaves ranks as it is named.

    Args:
        tolerance: of log-probabilities.
    """
    expected, _ = found["one by one"]
    assert len(expected) == 21
    for way, (responses, stats) in found.items():
        if way == "one by one":
            continue
        for key, response in responses.items():
            assert response.token_ids == expected[key].token_ids, (way, key)
            assert response.logprobs == pytest.approx(expected[key].logprobs, abs=tolerance), way
        assert any(each.shrinks for each in stats) == (way != "fixed"), way
        assert any(each.is_detached for each in stats) == (way == "detached"), way
