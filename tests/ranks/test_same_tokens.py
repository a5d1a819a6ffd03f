"""Promise 1: tokens do not depend on ranks, batches, order, budget or path."""

import functools

import pytest
import rollout_ranks as ranks

from flexfloor.launch import run_ranks

LAYOUTS = [(1, 1), (2, 2), (4, 4), (2, 1), (4, 2)]
WAYS = [
    {"path": "reference", "deal": "by prompt"},
    {"path": "fast", "deal": "by prompt"},
    {"path": "fast", "deal": "backwards"},
    {"path": "fast", "deal": "by response", "max_live": 2},
    {"path": "fast", "deal": "last rank", "max_live": 5},
    {"path": "reference", "deal": "last rank", "max_live": 1},
    {"path": "fast", "deal": "by response", "kv_budget_bytes": 45_000},
]
SAMPLINGS = [{}, {"temperature": 0.7, "top_p": 0.9}, {"top_k": 5}, {"temperature": 0.0}]


def generate_all_ways(ep_size, dtype):
    model = ranks.new_model(ep_size, dtype)
    ways = {str(way): ranks.generate(model, **way)[0] for way in WAYS}
    samplings = {
        str(sampling): ranks.generate(model, path="fast", deal="by response", sampling=sampling)[0]
        for sampling in SAMPLINGS
    }
    return ways, samplings


@functools.cache
def generated(world_size, ep_size, dtype):
    return run_ranks(
        generate_all_ways, world_size, ep_size, dtype, threads_per_rank=1, total_timeout_seconds=200
    )[0]


def tokens(responses):
    return {key: response.token_ids for key, response in responses.items()}


@pytest.mark.parametrize(("world_size", "ep_size"), LAYOUTS)
def test_float64_tokens_are_exactly_the_same_in_every_layout_and_way(world_size, ep_size):
    expected = tokens(generated(1, 1, "float64")[0][str(WAYS[0])])
    assert len(expected) == 21
    for way, responses in generated(world_size, ep_size, "float64")[0].items():
        assert tokens(responses) == expected, way


@pytest.mark.parametrize(("world_size", "ep_size"), LAYOUTS[1:3])
def test_float64_tokens_are_the_same_under_every_sampling(world_size, ep_size):
    for sampling, responses in generated(1, 1, "float64")[1].items():
        assert tokens(generated(world_size, ep_size, "float64")[1][sampling]) == tokens(responses), sampling


def test_log_probabilities_are_the_same_but_for_rounding():
    expected = generated(1, 1, "float64")[0][str(WAYS[0])]
    for way, responses in generated(4, 4, "float64")[0].items():
        for key, response in responses.items():
            assert response.logprobs == pytest.approx(expected[key].logprobs, abs=1e-12), (way, key)


def test_float32_flips_no_token_here_and_log_probabilities_stay_close():
    expected = generated(1, 1, "float32")[0][str(WAYS[0])]
    for layout in ((1, 1), (2, 2)):
        for way, responses in generated(*layout, "float32")[0].items():
            assert tokens(responses) == tokens(expected), way
            for key, response in responses.items():
                assert response.logprobs == pytest.approx(expected[key].logprobs, abs=1e-4)


def test_finish_reasons_and_one_end_token():
    responses = generated(1, 1, "float64")[0][str(WAYS[0])]
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


def test_siblings_and_seeds_differ():
    responses = generated(1, 1, "float64")[0][str(WAYS[0])]
    for uid in {uid for uid, _ in responses}:
        assert len({responses[uid, index].token_ids for index in range(ranks.SIBLINGS)}) > 1
