"""Responses of given lengths, generated in several ways on real ranks with one model and one ladder."""

import functools

import pytest
import rollout_ranks as ranks

from flexfloor import parallel
from flexfloor.launch import run_ranks

LENGTHS = [1 + 7 * index % 12 for index in range(20)] + [28]
"""Of the responses to `rollout_ranks.requests()`: the last one is alone for long."""


def generate_ways(ways, ep_size, name, *, tp_size=1, **usual):
    """`rollout_ranks.generate` by way, and as `fixed` by a group that nobody leaves; on one rank of all.

    Args:
        ways: how each differs from `usual`, and that from the fast path dealt by response.
    """
    from flexfloor.elastic.ladder import make_ladder

    model = ranks.new_model(ep_size, "float64", name, tp_size=tp_size)
    alone = tp_size == 1
    ladder = make_ladder(parallel.groups().ep, [], timeout_seconds=60, replica_size=tp_size, alone=alone)
    always = {"path": "fast", "deal": "by response", "forced": LENGTHS}
    found = {"fixed": ranks.generate(model, **always)}
    for way, how in ways.items():
        found[way] = ranks.generate(model, ladder=ladder, **always | usual | how)
    return found


def started(fn):
    """(name, world size, EP size) -> what the first rank has of `fn(ep_size, name)`; each run once."""

    @functools.cache
    def generated(name, world_size, ep_size):
        limits = {"threads_per_rank": 1, "total_timeout_seconds": 200}
        return run_ranks(fn, world_size, ep_size, name, **limits)[0]

    return generated


def require_tokens_of_the_fixed_group(found):
    """Every way has the tokens of `fixed`, and its log-probabilities but for rounding."""
    expected, _ = found["fixed"]
    assert sorted(len(response.token_ids) for response in expected.values()) == sorted(LENGTHS)
    for way, (responses, _) in found.items():
        assert responses.keys() == expected.keys(), way
        for key, response in responses.items():
            assert response.token_ids == expected[key].token_ids, (way, key)
            assert response.logprobs == pytest.approx(expected[key].logprobs, abs=1e-12), (way, key)
