"""Routing in float64 against formulas written out, one row at a time."""

import types

import pytest
import torch

from flexfloor.elastic.router import ElasticRouter, softmax_topk

ROWS, EXPERTS, TOP_K = 7, 6, 3
LOGITS = torch.randn(ROWS, EXPERTS, dtype=torch.float64, generator=torch.Generator().manual_seed(3))


def config(**changes):
    plain = {
        "num_moe_experts": EXPERTS,
        "moe_router_topk": TOP_K,
        "moe_router_pre_softmax": False,
        "moe_router_num_groups": None,
        "moe_router_topk_scaling_factor": None,
    }
    return types.SimpleNamespace(**plain | changes)


def router(**changes):
    made = ElasticRouter.__new__(ElasticRouter)
    torch.nn.Module.__init__(made)
    made.config, made.score_function, made.topk = config(**changes), "softmax", TOP_K
    return made


def shares(row, *, normalised):
    """{expert: share}: softmax over all, the largest K, divided by their sum if normalised."""
    exps = row.exp()
    best = sorted(range(EXPERTS), key=lambda expert: -row[expert])[:TOP_K]
    total = exps[best].sum() if normalised else exps.sum()
    return {expert: (exps[expert] / total).item() for expert in best}


@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("factor", [None, 2.5])
def test_float64_routing_is_exact(normalised, factor):
    made = router(moe_router_pre_softmax=not normalised, moe_router_topk_scaling_factor=factor)
    probs_TE, map_TE = made.routing(LOGITS[:, None])
    for row, probs_E, map_E in zip(LOGITS, probs_TE, map_TE, strict=True):
        expected = shares(row, normalised=normalised)
        assert set(map_E.nonzero()[:, 0].tolist()) == set(expected)
        for expert, share in expected.items():
            assert probs_E[expert].item() == pytest.approx(share * (factor or 1), rel=1e-14)
        assert probs_E[~map_E].abs().sum() == 0


@pytest.mark.parametrize("normalised", [True, False])
def test_low_precision_logits_are_routed_in_float32(normalised):
    rows = LOGITS.bfloat16()
    probs_TK, expert_TK = softmax_topk(rows, config(moe_router_pre_softmax=not normalised))
    assert probs_TK.dtype is torch.bfloat16
    for row, probs_K, expert_K in zip(rows.double(), probs_TK, expert_TK, strict=True):
        expected = shares(row, normalised=normalised)
        for prob, expert in zip(probs_K.tolist(), expert_K.tolist(), strict=True):
            assert prob == pytest.approx(expected[expert], rel=2**-8)
