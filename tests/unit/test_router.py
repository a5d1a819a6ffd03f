"""Routing in float64 against formulas written out, one row at a time."""

import math
import types

import pytest
import torch

from flexfloor.elastic.router import ElasticRouter, route_topk

ROWS, EXPERTS, TOP_K = 7, 6, 3
LOGITS = torch.randn(ROWS, EXPERTS, dtype=torch.float64, generator=torch.Generator().manual_seed(3))


def config(**changes):
    plain = {
        "num_moe_experts": EXPERTS,
        "moe_router_topk": TOP_K,
        "moe_router_pre_softmax": False,
        "moe_router_score_function": "softmax",
        "moe_router_num_groups": None,
        "moe_router_group_topk": None,
        "moe_router_topk_scaling_factor": None,
    }
    return types.SimpleNamespace(**plain | changes)


def router(**changes):
    made = ElasticRouter.__new__(ElasticRouter)
    torch.nn.Module.__init__(made)
    made.config, made.topk = config(**changes), TOP_K
    made.enable_expert_bias, made.expert_bias = False, None
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
    probs_TK, expert_TK = route_topk(rows, config(moe_router_pre_softmax=not normalised))
    assert probs_TK.dtype is torch.bfloat16
    for row, probs_K, expert_K in zip(rows.double(), probs_TK, expert_TK, strict=True):
        expected = shares(row, normalised=normalised)
        for prob, expert in zip(probs_K.tolist(), expert_K.tolist(), strict=True):
            assert prob == pytest.approx(expected[expert], rel=2**-8)


BIAS = torch.tensor([0.5, -0.1, 0.0, 0.4, -0.3, 0.2])
SIGMOID = {"moe_router_score_function": "sigmoid", "moe_router_num_groups": 3, "moe_router_group_topk": 2}


def best_of_best_pairs(row, bias, topk, counted):
    """{expert: share} of experts in three pairs: the best of the two best pairs, by score plus bias."""
    score = {expert: 1 / (1 + math.exp(-row[expert].item())) for expert in range(EXPERTS)}
    wanted = {expert: score[expert] + bias[expert].item() for expert in score}
    pairs = [(0, 1), (2, 3), (4, 5)]
    pairs.sort(key=lambda pair: -sum(sorted((wanted[e] for e in pair), reverse=True)[:counted]))
    chosen = sorted([*pairs[0], *pairs[1]], key=lambda expert: -wanted[expert])[:topk]
    return {expert: score[expert] / sum(score[e] for e in chosen) for expert in chosen}


@pytest.mark.parametrize(("topk", "counted"), [(2, 1), (4, 2)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_sigmoid_scores_with_groups_and_biases(topk, counted, dtype):
    settings = config(**SIGMOID, moe_router_topk=topk, moe_router_topk_scaling_factor=2.5)
    shares_TK, expert_TK = route_topk(LOGITS.to(dtype), settings, BIAS)
    plain_TK = route_topk(LOGITS.to(dtype), settings)[1]
    assert (expert_TK.sort().values != plain_TK.sort().values).any(), "the bias should matter here"
    for row, shares_K, expert_K in zip(LOGITS, shares_TK, expert_TK, strict=True):
        expected = best_of_best_pairs(row, BIAS, topk, counted)
        assert set(expert_K.tolist()) == set(expected)
        for share, expert in zip(shares_K.tolist(), expert_K.tolist(), strict=True):
            assert share == pytest.approx(2.5 * expected[expert], rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_groups_may_score_their_single_best_expert(dtype):
    """As DeepSeek-V2's do: softmax scores, undivided, of the best 4 in the 2 pairs with the best experts."""
    pairs = {"moe_router_num_groups": 3, "moe_router_group_topk": 2}
    made = router(**pairs, moe_router_topk=4, moe_router_pre_softmax=True, moe_router_group_experts=1)
    probs_TE, map_TE = made.routing(LOGITS[:, None].to(dtype))
    by_sum_TE = router(**pairs, moe_router_topk=4, moe_router_pre_softmax=True).routing(LOGITS[:, None])[1]
    assert (map_TE != by_sum_TE).any(), "the rule should matter here"
    for row, probs_E, map_E in zip(LOGITS, probs_TE, map_TE, strict=True):
        pair_of_best = sorted([(0, 1), (2, 3), (4, 5)], key=lambda pair: -max(row[e] for e in pair))
        chosen = {*pair_of_best[0], *pair_of_best[1]}
        assert set(map_E.nonzero()[:, 0].tolist()) == chosen
        for expert in chosen:
            share = (row[expert].exp() / row.exp().sum()).item()
            assert probs_E[expert].item() == pytest.approx(share, rel=1e-6)


def test_no_tokens_are_routed_nowhere():
    made = router(**SIGMOID)
    probs_TE, map_TE = made.routing(torch.zeros(0, 1, EXPERTS))
    assert probs_TE.shape == map_TE.shape == (0, EXPERTS)


def test_tokens_of_a_pass_with_gradient_are_counted_for_the_bias():
    made = router(**SIGMOID)
    made.enable_expert_bias, made.expert_bias = True, BIAS
    made.local_tokens_per_expert = torch.zeros(EXPERTS)
    routed = made.routing(LOGITS[:, None])[1]
    with torch.no_grad():
        made.routing(LOGITS[:, None])
    assert made.local_tokens_per_expert.tolist() == routed.sum(0).tolist()
    assert routed.sum() == ROWS * TOP_K


def test_rows_that_stand_for_nothing_are_not_counted():
    made = router(**SIGMOID)
    made.enable_expert_bias, made.expert_bias = True, BIAS
    made.local_tokens_per_expert = torch.zeros(EXPERTS)
    stands_for_nothing_T1 = torch.arange(ROWS)[:, None] >= ROWS - 2
    routed = made.routing(LOGITS[:, None], stands_for_nothing_T1)[1]
    assert made.local_tokens_per_expert.tolist() == routed[: ROWS - 2].sum(0).tolist()
