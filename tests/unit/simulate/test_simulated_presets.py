"""Models and hardware against what was published of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexfloor.config import compose
from flexfloor.schedule.cost import PassLoad
from flexfloor.simulate.hardware import HARDWARE
from flexfloor.simulate.models import MODELS
from flexfloor.simulate.resolve import scenario_of
from flexfloor.simulate.roofline import GroupLoad, Roofline

PUBLISHED = {
    # layers, MoE layers, hidden, experts, top-k, routed GB, KV bytes a token, billions, active billions
    "mixtral-8x7b": (32, 32, 4096, 8, 2, 90, 131_072, 46.7, 12.9),
    "deepseek-v2-lite": (27, 26, 2048, 64, 6, 28.8, 31_104, 15.7, 2.4),
    "deepseek-v3": (61, 58, 7168, 256, 8, 1308, 70_272, 671, 37),
    "qwen3-30b-a3b": (48, 48, 2048, 128, 8, 58, 98_304, 30.5, 3.3),
    "qwen3-235b-a22b": (94, 94, 4096, 128, 8, 454, 192_512, 235, 22),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_model_is_what_was_published(name):
    layers, moe_layers, hidden, experts, top_k, routed_gb, kv_bytes, total, active = PUBLISHED[name]
    model = MODELS[name]
    assert (model.num_layers, model.num_moe_layers, model.hidden_size) == (layers, moe_layers, hidden)
    assert (model.num_experts, model.top_k, model.kv_token_bytes) == (experts, top_k, kv_bytes)
    assert model.routed_bytes / 1e9 == pytest.approx(routed_gb, rel=0.005)
    assert model.total_parameters / 1e9 == pytest.approx(total, rel=0.002)
    # Some count the embedding of the input as active, and some do not.
    embedding = model.vocab_size * hidden
    counted = (model.active_parameters, model.active_parameters - embedding)
    assert any(each / 1e9 == pytest.approx(active, rel=0.025) for each in counted)


def test_every_preset_is_compared_with_something_published():
    assert set(MODELS) == set(PUBLISHED)
    assert set(HARDWARE) == {"h100", "h200", "h800"}


DEEP_EP = {8: (77, 114), 16: (118, 195), 32: (155, 273), 64: (173, 314), 128: (192, 369), 256: (194, 360)}
"""Microseconds of dispatch in FP8 and combine in bfloat16 by EP size: 128 tokens of 7,168 numbers, top-8, on
H800 (DeepEP's low-latency kernels, docs/legacy.md of its repository)."""


@pytest.mark.parametrize("ep", DEEP_EP)
def test_all_to_all_takes_what_deep_ep_was_measured_to_take(ep):
    cost = Roofline(MODELS["deepseek-v3"], HARDWARE["h800"])
    dispatch, combine = DEEP_EP[ep]
    sent = 128 * 8 * 7168
    assert cost.one_way_seconds(ep, sent) * 1e6 == pytest.approx(dispatch, rel=0.15)
    assert cost.one_way_seconds(ep, 2 * sent) * 1e6 == pytest.approx(combine, rel=0.15)


@pytest.mark.parametrize(
    ("name", "ep", "gigabytes", "node_ms", "net_ms"),
    [
        ("deepseek-v2-lite", 8, 3.6, 9, 72),
        ("qwen3-30b-a3b", 8, 7.2, 19, 145),
        ("qwen3-235b-a22b", 16, 28, 75, 568),
    ],
)
def test_halving_a_group_copies_what_was_worked_out(name, ep, gigabytes, node_ms, net_ms):
    hardware = HARDWARE["h100"]
    copied = Roofline(MODELS[name], hardware).guest_bytes(ep, ep // 2)
    assert copied / 1e9 == pytest.approx(gigabytes, rel=0.02)
    assert copied / hardware.node_link_bytes_per_second * 1e3 == pytest.approx(node_ms, abs=0.5)
    assert copied / hardware.net_link_bytes_per_second * 1e3 == pytest.approx(net_ms, rel=0.02)


def test_a_pass_by_hand():
    """Mixtral on one H200: 8 rows read all experts (1 - 0.75^8 = 0.8999 of them), nothing is exchanged."""
    model = MODELS["mixtral-8x7b"]
    cost = Roofline(model, HARDWARE["h200"])
    read = 0.8 * 4.8e12
    dense = (model.dense_parameters - 32_000 * 4096) * 2 / read
    experts = 90.194313216e9 * (1 - 0.75**8) / read
    cache = 10_000 * 131_072 / read
    seconds = cost.pass_seconds(PassLoad(ranks=1, rows=8, joining=0, context=10_000))
    assert seconds == pytest.approx(dense + experts + cache, rel=1e-9)


def test_a_prefill_is_bound_by_arithmetic():
    """Of 100,000 tokens on one H200: 2 flops a token and parameter at half of 989 TFLOP/s."""
    model = MODELS["mixtral-8x7b"]
    seconds = Roofline(model, HARDWARE["h200"]).pass_seconds(
        PassLoad(ranks=1, rows=0, joining=100_000, context=0)
    )
    parameters = model.active_parameters - 32_000 * 4096
    assert seconds == pytest.approx(2 * parameters * 1e5 / (0.5 * 989e12), rel=1e-9)


def test_a_pass_with_next_to_nothing_takes_the_floor():
    model = MODELS["qwen3-30b-a3b"]
    load = PassLoad(ranks=8, rows=0, joining=0, context=0)
    assert Roofline(model, HARDWARE["h100"], floor_seconds=0.5).pass_seconds(load) == 0.5
    assert Roofline(model, HARDWARE["h100"]).pass_seconds(load) >= 48 * 60e-6


def test_training_a_token_takes_six_flops_a_parameter():
    model = MODELS["mixtral-8x7b"]
    seconds = Roofline(model, HARDWARE["h100"]).train_seconds(1000.0)
    assert seconds == pytest.approx(6 * model.active_parameters * 1000 / (0.35 * 989e12))


def test_a_recomputed_layer_takes_a_third_more():
    """All that a token multiplies with but the output layer; an embedding's row is looked up."""
    model = MODELS["mixtral-8x7b"]
    layers = model.active_parameters - 2 * 32_000 * 4096 - 4096
    again = replace(model, recomputed_parameters=layers)
    plain, seconds = (Roofline(each, HARDWARE["h100"]).train_seconds(1.0) for each in (model, again))
    assert seconds - plain == pytest.approx(2 * layers / (0.35 * 989e12))
    recomputed = scenario_of(compose(["recipe=mixtral-8x7b", "actor.recompute=full"])).model
    assert recomputed.recomputed_parameters == layers


loads = st.tuples(
    st.sampled_from([1, 2, 4, 8, 16, 64]),
    st.integers(0, 512),
    st.integers(0, 8192),
    st.integers(0, 10**6),
    st.integers(0, 64 * 512),
)


@given(st.sampled_from(sorted(MODELS)), loads, st.integers(0, 3))
def test_more_to_do_never_takes_less(name, drawn, which):
    ranks, rows, joining, context, others = drawn
    cost = Roofline(MODELS[name], HARDWARE["h100"])

    def seconds(more):
        own = [rows, joining, context, rows + joining + others]
        own[which] += more
        own[3] += more if which < 2 else 0
        return cost.pass_seconds(
            GroupLoad(ranks=ranks, rows=own[0], joining=own[1], context=own[2], total=own[3])
        )

    assert seconds(0) <= seconds(1) <= seconds(1000)


@given(st.sampled_from(sorted(MODELS)), loads)
def test_better_hardware_is_never_slower(name, drawn):
    """An H200 has an H100's links and more memory bandwidth; an H100 an H800's memory and faster links."""
    ranks, rows, joining, context, others = drawn
    load = GroupLoad(ranks=ranks, rows=rows, joining=joining, context=context, total=rows + joining + others)
    costs = [Roofline(MODELS[name], HARDWARE[hardware]) for hardware in ("h200", "h100", "h800")]
    taken = [float(cost.pass_seconds(load)) for cost in costs]
    assert taken == sorted(taken)
    shrunk = [cost.shrink_seconds(8, 4, 1000.0) for cost in costs]
    assert shrunk == sorted(shrunk)


def test_a_load_that_knows_all_ranks_is_never_slower_than_all_ranks_alike():
    cost = Roofline(MODELS["qwen3-30b-a3b"], HARDWARE["h100"])
    alike = cost.pass_seconds(PassLoad(ranks=8, rows=4, joining=0, context=100))
    alone = cost.pass_seconds(GroupLoad(ranks=8, rows=4, joining=0, context=100, total=4))
    full = cost.pass_seconds(GroupLoad(ranks=8, rows=4, joining=0, context=100, total=32))
    assert alone < full == alike


def test_a_rank_that_has_parted_reads_every_expert_that_its_own_rows_chose_and_sends_none():
    cost = Roofline(MODELS["qwen3-30b-a3b"], HARDWARE["h100"], floor_seconds=0.0)
    own = {"rows": 4, "joining": 0, "context": 100}
    parted = cost.alone_seconds(GroupLoad(ranks=8, total=32, **own))
    assert parted == cost.pass_seconds(PassLoad(ranks=1, **own))
    assert parted != cost.pass_seconds(GroupLoad(ranks=8, total=32, **own))
