"""The reference path under a shrink: what Megatron's layer computes, and what is left of it afterwards."""

import functools
import gc
import weakref

import gradient_ranks
import numpy as np
import pytest
import rollout_ranks
import torch
import torch.distributed as dist

from flexfloor import parallel
from flexfloor.launch import run_ranks
from flexfloor.models.mixtral import Mixtral

FAMILIES = ["mixtral", "deepseek_v3"]


def new_engine(model, *, path, policy):
    from flexfloor.elastic.config import ElasticConfig
    from flexfloor.elastic.ladder import make_ladder
    from flexfloor.rollout.config import RolloutConfig
    from flexfloor.rollout.engine import RolloutEngine

    group = parallel.groups().ep
    return RolloutEngine(
        model,
        group=group,
        rollout=RolloutConfig(path=path, kv_budget_bytes=2**24),
        eos_id=-1,
        elastic=ElasticConfig(policy=policy, interval=1),
        ladder=make_ladder(group, [], timeout_seconds=60),
    )


def some_requests(rank):
    """One long response for each rank, and shorter ones that let ranks go one by one."""
    from flexfloor.rollout.types import Request

    return [
        Request(uid=f"{rank}", response_index=i, prompt_ids=(3, 4 + rank), max_new_tokens=2 + 3 * i + rank)
        for i in range(3)
    ]


def generate_watching_guests(model):
    """(stats, bytes of guests, how many of them are alive afterwards) of one rollout that shrinks."""
    from flexfloor.rollout.reference_path import ReferencePath

    seen, place = [], ReferencePath.place

    def watched(path, placement, group, guests):
        seen.extend(weakref.ref(w) for layers in guests.values() for each in layers for w in each)
        sizes.extend(w.nbytes for layers in guests.values() for each in layers for w in each)
        place(path, placement, group, guests)

    sizes = []
    ReferencePath.place = watched
    gc.disable()
    try:
        engine = new_engine(model, path="reference", policy="greedy")
        _, stats = engine.generate(some_requests(dist.get_rank()), seed=3)
        return stats, sum(sizes), sum(guest() is not None for guest in seen)
    finally:
        gc.enable()
        ReferencePath.place = place


def train_around_a_rollout(ep_size, name):
    ddp, groups = gradient_ranks.build(ep_size, name=name)
    case = gradient_ranks.make_case(budget=16)
    samples = gradient_ranks.as_samples(case["samples"], case["kind"])
    found = []
    for _ in range(2):
        metrics = gradient_ranks.make_step(ddp, groups, case).update(samples)
        found.append((metrics, gradient_ranks.named(ddp, lambda p: p.main_grad)))
        modules = [(key, id(module)) for key, module in ddp.named_modules()]
        if len(found) == 1:
            before, rollout = modules, generate_watching_guests(ddp.module)
            assert dist.get_process_group_ranks(parallel.groups().ep) == dist.get_process_group_ranks(
                groups.ep
            )
    assert modules == before, "a layer kept what stood in it"
    return found, rollout


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("ep_size", [2, 4])
def test_a_layer_trains_after_a_shrink_as_before_it(name, ep_size):
    found = run_ranks(
        train_around_a_rollout, ep_size, ep_size, name, threads_per_rank=1, total_timeout_seconds=120
    )
    for (metrics, gradients), (metrics_after, gradients_after) in (steps for steps, _ in found):
        assert metrics_after == metrics
        assert max(np.abs(value).max() for value in gradients.values()) > 0
        for parameter, value in gradients.items():
            np.testing.assert_array_equal(gradients_after[parameter], value, err_msg=parameter)
    stayed, guest_bytes, alive = zip(*(rollout for _, rollout in found), strict=True)
    assert stayed[0].shrinks > 0 and guest_bytes[0] > 0, "the first rank took experts over"
    assert not any(alive)


HOSTS = {
    "home": [[0, 1], [2, 3]],
    "uneven": [[1], [0, 2, 3]],
    "scattered": [[3, 0], [2, 1]],
    "several hosts": [[3, 0, 1], [2, 1, 3]],
    "everywhere": [[0, 1, 2, 3], [3, 2, 1, 0]],
}
ROWS = {"many": (5, 40), "on one rank": (0, 3), "one": (1, 0), "none": (0, 0)}


def outputs_and_gradients(ep_size):
    """By placement and rows: output of the first layer, the same at home, gradients of rows and experts."""
    from flexfloor.elastic.hosting import computing_as, hosted_layer
    from flexfloor.elastic.moe_layer import moe_layers

    ddp, groups = gradient_ranks.build(ep_size)
    layer, rank, found = moe_layers(ddp.module)[0], dist.get_rank(), {}
    own, gathered = layer.expert_weights(), [None] * dist.get_world_size()
    dist.all_gather_object(gathered, {e: [w.detach() for w in weights] for e, weights in own.items()})
    everything = {expert: weights for each in gathered for expert, weights in each.items()}
    for way, hosts in HOSTS.items():
        for name, num_rows in ROWS.items():
            ddp.zero_grad_buffer()
            guests = {e: [w.clone().requires_grad_() for w in weights] for e, weights in everything.items()}
            shape = (num_rows[rank], 1, layer.config.hidden_size)
            rows = (torch.arange(np.prod(shape), dtype=torch.float64) + rank).sin().view(shape)
            expected, _ = layer(rows.requires_grad_())
            with computing_as([hosted_layer(layer, hosts, guests, groups.ep)]):
                out, _ = layer(rows)
            (out * torch.arange(1.0, 1 + out.size(-1))).sum().backward()
            gradients = {
                e: [w.main_grad.clone() for w in own[e]] if e in own else [w.grad for w in guests[e]]
                for e in hosts[rank]
            }
            found[way, name] = (out.detach(), expected.detach(), rows.grad, gradients)
    return found


@functools.cache
def computed():
    return run_ranks(outputs_and_gradients, 2, 2, threads_per_rank=1, total_timeout_seconds=120)


def test_any_hosts_compute_what_megatrons_own_dispatcher_computes():
    for found in computed():
        for key, (out, expected, _, _) in found.items():
            torch.testing.assert_close(out, expected, rtol=0, atol=1e-13, msg=str(key))


def summed(by_rank):
    """By expert: its gradients, added up over its hosts."""
    return {
        expert: [
            sum(parts) for parts in zip(*(each[expert] for each in by_rank if expert in each), strict=True)
        ]
        for expert in {expert for each in by_rank for expert in each}
    }


def test_gradients_under_any_hosts_are_those_of_home():
    for way, name in computed()[0]:
        for found in computed():
            torch.testing.assert_close(
                found[way, name][2], found["home", name][2], rtol=0, atol=1e-12, msg=f"{way}, {name}"
            )
        at_home, here = (summed([found[w, name][3] for found in computed()]) for w in ("home", way))
        assert name != "many" or all(g.any() for gradients in at_home.values() for g in gradients)
        assert at_home.keys() == here.keys() == set(range(4))
        for expert, gradients in at_home.items():
            for gradient, other in zip(gradients, here[expert], strict=True):
                torch.testing.assert_close(
                    other, gradient, rtol=0, atol=1e-12, msg=f"{way}, {name}, {expert}"
                )


class BiasedMixtral(Mixtral):
    """A family that the fast path does not know: linear layers with bias, and GELU without a gate."""

    def transformer_config(self, model, *, ep_size):
        config = super().transformer_config(model, ep_size=ep_size)
        config.add_bias_linear, config.gated_linear_unit = True, False
        config.activation_func = torch.nn.functional.gelu
        return config


def generate_with_an_unknown_model(ep_size):
    rollout_ranks.MODELS["biased"] = {"family": "test_elastic_reference:BiasedMixtral", "num_experts": 12}
    model = rollout_ranks.new_model(ep_size, "float64", "biased")
    found = {}
    for policy in ("never", "greedy"):
        engine = new_engine(model, path="fast", policy=policy)
        responses, stats = engine.generate(some_requests(dist.get_rank()), seed=3)
        gathered = [None] * ep_size
        dist.all_gather_object(gathered, {(r.uid, r.response_index): r.token_ids for r in responses})
        tokens = {key: ids for each in gathered for key, ids in each.items()}
        found[policy] = (engine.path_name, tokens, stats.shrinks)
    return found


def test_a_model_that_the_fast_path_does_not_know_shrinks_with_the_same_tokens():
    found = run_ranks(generate_with_an_unknown_model, 3, 3, threads_per_rank=1, total_timeout_seconds=120)[0]
    (path, fixed, none), (path_too, shrunk, shrinks) = found["never"], found["greedy"]
    assert path == path_too == "reference"
    assert len(fixed) == 9 and shrunk == fixed
    assert none == 0 and shrinks > 0


def test_an_expert_without_a_host_or_twice_at_one_is_refused():
    from types import SimpleNamespace

    from flexfloor.elastic.dispatcher import PlacedDispatcher

    group = SimpleNamespace(size=lambda: 2)
    for hosts in ([[0, 1], [2]], [[0, 1], [1, 2, 3, 2]], [[0, 1, 2, 3], []]):
        with pytest.raises(AssertionError, match="is not every expert"):
            PlacedDispatcher(SimpleNamespace(num_moe_experts=4), hosts, group=group, tp_group=group)
