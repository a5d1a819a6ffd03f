"""The floor's arithmetic against what ranks really allocate, and shrinking under a budget."""

import functools
import gc

import pytest
import rollout_ranks as ranks
import torch

from flexfloor import parallel
from flexfloor.errors import ConfigError
from flexfloor.launch import run_ranks

LIVE = 8


def held_bytes():
    """Bytes of all tensors of this process; one in a blocked layout has no storage that could be seen."""
    tensors = [each for each in gc.get_objects() if isinstance(each, torch.Tensor)]
    blocked = {id(t): t.numel() * t.element_size() for t in tensors if t.layout is torch._mkldnn}
    dense = [t.untyped_storage() for t in tensors if t.layout is torch.strided]
    return sum({s.data_ptr(): s.nbytes() for s in dense}.values()) + sum(blocked.values())


def counted_and_allocated(dtype, name, tp_size):
    """(by arithmetic, by looking) of the weights, the copies of the fast path, and training."""
    from flexfloor.elastic.floor import Need
    from flexfloor.elastic.load import ExpertLoad
    from flexfloor.elastic.moe_layer import moe_layers
    from flexfloor.elastic.replica import Replica
    from flexfloor.rollout.fast_path import FastPath
    from flexfloor.rollout.footprint import rank_memory
    from flexfloor.rollout.kernels.plain import PlainOperators
    from flexfloor.train.config import OptimConfig
    from flexfloor.train.optimizer import build_ddp, build_optimizer
    from flexfloor.train.resident import training_bytes

    before = held_bytes()
    model = ranks.new_model(2, dtype, name, tp_size=tp_size)
    weights = held_bytes() - before
    layers = moe_layers(model)
    load = ExpertLoad(len(layers), layers[0].config.num_moe_experts, torch.device("cpu"))
    before = held_bytes()
    path = FastPath(model, load, Replica(parallel.groups().tp), PlainOperators(), num_positions=ranks.LONGEST)
    copies = held_bytes() - before
    memory = rank_memory(model, budget=1, training=0)
    at_home = memory.needed(len(layers[0].expert_weights()), Need(sequences=0, kv_tokens=0, rows=0))
    before = held_bytes()
    ddp = build_ddp(model, parallel.groups())
    optimizer = build_optimizer(ddp, OptimConfig(lr=1e-3), parallel.groups())
    for weight in model.parameters():
        weight.main_grad.fill_(0.1)
    optimizer.step()
    del path
    kept = held_bytes() - before + copies
    return (at_home, weights + copies), (training_bytes(model), kept)


@pytest.mark.parametrize(
    ("dtype", "name", "tp_size"),
    [
        ("float32", "mixtral", 1),
        ("float64", "mixtral", 1),
        ("float32", "deepseek_v3", 1),
        ("float32", "deepseek_v3", 2),
    ],
)
def test_the_arithmetic_counts_what_is_allocated(dtype, name, tp_size):
    for (at_home, weights), (training, kept) in run_ranks(
        counted_and_allocated, 2, dtype, name, tp_size, threads_per_rank=1, total_timeout_seconds=200
    ):
        # rotary tables, buffers and counters are small and not counted
        assert weights == pytest.approx(at_home, rel=0.1) and weights >= at_home * 0.98
        assert kept == pytest.approx(training, rel=0.02)


def under_budgets(dtype):
    """For several budgets: the budget, passes of both ranks, the most that this one held, the responses."""
    from flexfloor.elastic.floor import Need
    from flexfloor.elastic.ladder import make_ladder
    from flexfloor.rollout.footprint import rank_memory

    model = ranks.new_model(2, dtype)
    ladder = make_ladder(parallel.groups().ep, [], timeout_seconds=60)
    weights = sum(weight.nbytes for weight in model.parameters())
    gc.collect()
    gc.freeze()  # what is there by now is not looked at again, which would take most of the time
    memory = rank_memory(model, budget=1, training=0)
    longest = max(len(r.prompt_ids) + r.max_new_tokens for r in ranks.requests())
    full = Need(sequences=LIVE, kv_tokens=LIVE * longest, rows=longest)
    least = memory.needed(4, full)
    steps = [0, memory.expert * 3, 10**9]
    found = []
    for extra in steps:
        seen, passes = [], []
        responses, _ = ranks.generate(
            model,
            path="fast",
            deal="by response",
            max_live=LIVE,
            elastic={"policy": "greedy", "interval": 1, "sequences_per_rank": 21},
            ladder=ladder,
            budget=least + extra,
            on_pass=lambda progress, seen=seen, passes=passes: (
                seen.append(held_bytes() + weights),
                passes.append(progress.active),
            ),
        )
        tokens = {key: response.token_ids for key, response in responses.items()}
        found.append((least + extra, passes.count(2), max(seen), tokens))
    refused = ""
    try:
        ranks.generate(model, path="fast", deal="by response", max_live=LIVE, ladder=ladder, budget=least - 1)
    except ConfigError as error:
        refused = str(error)
    return found, refused, least


@functools.cache
def budgets(dtype):
    return run_ranks(under_budgets, 2, dtype, threads_per_rank=1, total_timeout_seconds=200)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_shrink_waits_until_the_memory_is_there_and_no_rank_holds_more_than_its_budget(dtype):
    for found, _, _ in budgets(dtype):
        together = [of_two for _, of_two, _, _ in found]
        assert together[0] > together[1] > together[2], together
        for budget, _, most, tokens in found:
            assert most <= budget
            assert tokens == found[0][3]


def test_a_budget_that_does_not_hold_the_model_is_refused():
    for _, refused, least in budgets("float32"):
        assert refused.startswith(f"memory.budget_bytes = {least - 1}: must be at least {least} bytes")
