"""Promise 1: tokens do not depend on ranks, batches, order, budget or path, for every family."""

import functools

import pytest
import rollout_ranks as ranks
import torch.distributed as dist

from flexfloor.launch import run_ranks

LAYOUTS = [(1, 1, 1), (2, 2, 1), (4, 4, 1), (2, 1, 1), (4, 2, 1)]
SPLIT = [(2, 2, 2), (4, 4, 2), (4, 2, 2)]
"""World, expert parallelism and tensor parallelism, by `make test-slow`; `test_split_heads.py` is their short
sibling."""
QUICK = [(1, 1, 1), (4, 4, 1)]
"""Layouts that every family is tried in by default; others with one, and with all by `make test-slow`."""
WAYS = [
    {"path": "reference", "deal": "by prompt"},
    {"path": "fast", "deal": "by prompt"},
    {"path": "fast", "deal": "backwards"},
    {"path": "fast", "deal": "backwards", "kernels": "off"},
    {"path": "fast", "deal": "by response", "max_live": 1},
    {"path": "fast", "deal": "last rank", "max_live": 5},
    {"path": "reference", "deal": "last rank", "max_live": 7},
    {"path": "fast", "deal": "by response", "kv_budget_bytes": 45_000, "admission": "reserve"},
]
TIGHT = 32_000
"""Bytes for 62 cached tokens of Mixtral and 41, one greatest length, of Qwen3-MoE in float64."""
PRESSED = [
    {"path": "fast", "deal": "by response", "kv_budget_bytes": TIGHT},
    {"path": "fast", "deal": "backwards", "kv_budget_bytes": TIGHT, "max_live": 3},
    {"path": "reference", "deal": "by response", "kv_budget_bytes": TIGHT},
]
STOP = ["fe", "cac", "aab"]
ENDINGS = [
    {"ignore_eos": True},
    {"stop": STOP},
    {"stop": STOP, "ignore_eos": True},
    {"stop": STOP, "forced": 9},
]
SAMPLINGS = [{}, {"temperature": 0.7, "top_p": 0.9}, {"top_k": 5}, {"temperature": 0.0}]


def generate_all_ways(ep_size, tp_size, dtype, name):
    model = ranks.new_model(ep_size, dtype, name, tp_size=tp_size)
    found = {str(way): ranks.generate(model, **way) for way in WAYS + PRESSED}
    ways = {way: responses for way, (responses, _) in found.items()}
    preemptions = {way: sum(each.preemptions for each in stats) for way, (_, stats) in found.items()}
    if dtype != "float64":
        return ways, None, None, preemptions
    samplings = {
        str(sampling): ranks.generate(model, path="fast", deal="by response", sampling=sampling)[0]
        for sampling in SAMPLINGS
    }
    how = {"path": "fast", "deal": "by response", "max_live": 6}
    if dist.get_world_size() > 1:
        how["kv_budget_bytes"] = TIGHT
    endings = {str(ending): ranks.generate(model, **how, **ending)[0] for ending in ENDINGS}
    return ways, samplings, endings, preemptions


@functools.cache
def generated(world_size, ep_size, tp_size, dtype, name):
    given = (ep_size, tp_size, dtype, name)
    return run_ranks(generate_all_ways, world_size, *given, threads_per_rank=1, total_timeout_seconds=200)[0]


def tokens(responses):
    return {key: response.token_ids for key, response in responses.items()}


def plain(name, dtype="float64"):
    """One rank on Megatron's own modules: what every other way must give."""
    return generated(1, 1, 1, dtype, name)[0][str(WAYS[0])]


def in_layouts(layouts):
    """Every family in each of some layouts."""
    cases = [
        pytest.param(*layout, name, marks=() if _is_quick(layout, name) else pytest.mark.slow)
        for layout in layouts
        for name in ranks.FAMILIES
    ]
    return pytest.mark.parametrize(("world_size", "ep_size", "tp_size", "name"), cases)


def _is_quick(layout, name):
    return layout in QUICK or (layout not in SPLIT and name == "mixtral")


every_family = pytest.mark.parametrize("name", ranks.FAMILIES)


@in_layouts(LAYOUTS + SPLIT)
def test_float64_tokens_are_exactly_the_same_in_every_layout_and_way(world_size, ep_size, tp_size, name):
    expected = tokens(plain(name))
    assert len(expected) == 21
    for way, responses in generated(world_size, ep_size, tp_size, "float64", name)[0].items():
        assert tokens(responses) == expected, way


@in_layouts(LAYOUTS + SPLIT)
def test_sequences_yield_and_are_computed_again_where_the_budget_is_tight(world_size, ep_size, tp_size, name):
    preemptions = generated(world_size, ep_size, tp_size, "float64", name)[3]
    assert all(preemptions[str(way)] >= 2 for way in PRESSED), preemptions
    assert not any(preemptions[str(way)] for way in WAYS)


@pytest.mark.slow
def test_float64_tokens_are_the_same_where_shares_of_experts_are_not_normalised():
    expected = tokens(plain(ranks.UNNORMALISED))
    assert expected != tokens(plain("qwen3_moe"))
    for layout in ((1, 1, 1), (2, 2, 1)):
        for way, responses in generated(*layout, "float64", ranks.UNNORMALISED)[0].items():
            assert tokens(responses) == expected, (layout, way)


@in_layouts(LAYOUTS[1:3])
def test_float64_tokens_are_the_same_under_every_sampling(world_size, ep_size, tp_size, name):
    for sampling, responses in generated(1, 1, 1, "float64", name)[1].items():
        found = generated(world_size, ep_size, tp_size, "float64", name)[1][sampling]
        assert tokens(found) == tokens(responses), sampling


@in_layouts(LAYOUTS[:3])
def test_responses_end_where_their_tokens_say_in_every_layout(world_size, ep_size, tp_size, name):
    endings = generated(world_size, ep_size, tp_size, "float64", name)[2]
    free = tokens(generated(1, 1, 1, "float64", name)[2][str(ENDINGS[0])])
    for ending in ENDINGS:
        for key, response in endings[str(ending)].items():
            expected = cut(free[key], **ending)
            assert (response.token_ids, response.finish_reason) == expected, (ending, key)
            assert len(response.logprobs) == len(response.token_ids)
    assert {r.finish_reason for r in endings[str(ENDINGS[1])].values()} == {"eos", "stop", "length"}


def cut(token_ids, *, ignore_eos=False, stop=(), forced=None):
    """Where a response whose tokens would go on as `token_ids` ends, and why."""
    if forced:
        return token_ids[:forced], "length"
    for count in range(1, len(token_ids) + 1):
        if token_ids[count - 1] == ranks.EOS and not ignore_eos:
            return token_ids[:count], "eos"
        if any(string in ranks.decode(token_ids[:count]) for string in stop):
            return token_ids[:count], "stop"
    return token_ids, "length"


@every_family
def test_log_probabilities_are_the_same_but_for_rounding(name):
    expected = plain(name)
    for way, responses in generated(4, 4, 1, "float64", name)[0].items():
        for key, response in responses.items():
            assert response.logprobs == pytest.approx(expected[key].logprobs, abs=1e-12), (way, key)


@in_layouts([(1, 1, 1), (2, 2, 1), *SPLIT])
def test_float32_flips_no_token_here_and_log_probabilities_stay_close(world_size, ep_size, tp_size, name):
    expected = plain(name, "float32")
    for way, responses in generated(world_size, ep_size, tp_size, "float32", name)[0].items():
        assert tokens(responses) == tokens(expected), way
        for key, response in responses.items():
            assert response.logprobs == pytest.approx(expected[key].logprobs, abs=1e-4)


@every_family
def test_finish_reasons_and_one_end_token(name):
    responses = plain(name)
    reasons = {response.finish_reason for response in responses.values()}
    assert reasons == {"eos", "length"}, "the test model should show both"
    for (uid, _), response in responses.items():
        allowed = 12 + 3 * int(uid[1:])
        assert len(response.token_ids) == len(response.logprobs) <= allowed
        ends = response.token_ids.count(ranks.EOS)
        if response.finish_reason == "eos":
            assert ends == 1 and response.token_ids[-1] == ranks.EOS
        else:
            assert ends == 0 and len(response.token_ids) == allowed


@every_family
def test_siblings_and_seeds_differ(name):
    responses = plain(name)
    for uid in {uid for uid, _ in responses}:
        assert len({responses[uid, index].token_ids for index in range(ranks.SIBLINGS)}) > 1
