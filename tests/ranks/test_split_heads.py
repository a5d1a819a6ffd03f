"""A rollout whose replicas are several ranks: the tokens of one rank, counted and handed out once."""

import functools

import pytest
import rollout_ranks as ranks

from flexfloor import parallel
from flexfloor.launch import run_ranks

WAYS = [
    {"path": "reference", "deal": "last rank"},
    {"path": "fast", "deal": "by response", "kv_budget_bytes": 32_000, "sampling": {"top_p": 0.9}},
]
PLAIN = [WAYS[0], {"path": "reference", "deal": "by prompt", "sampling": {"top_p": 0.9}}]


def spreading(model):
    """Which modules spread rows over a replica, as they do for training and not in a rollout."""
    switches = ("sequence_parallel", "scatter_to_sequence_parallel", "replica")
    return [[getattr(module, name, None) for name in switches] for module in model.modules()]


def generate_ways(ep_size, tp_size, ways):
    """By family: what `generate` gives for each way, and how many responses this rank was handed."""
    found = {}
    for name in ranks.FAMILIES:
        model, handed = ranks.new_model(ep_size, "float64", name, tp_size=tp_size), []
        before = spreading(model)
        found[name] = [ranks.generate(model, on_finished=handed.append, **way) for way in ways], len(handed)
        assert spreading(model) == before, "training would spread other rows"
        assert model.config.sequence_parallel == (tp_size > 1)
        parallel.destroy()
    return found


@functools.cache
def generated(world_size, ep_size, tp_size):
    ways = WAYS if tp_size > 1 else PLAIN
    return run_ranks(
        generate_ways, world_size, ep_size, tp_size, ways, threads_per_rank=1, total_timeout_seconds=200
    )


def both(name):
    """(of one rank, of two replicas of two ranks) for each way."""
    alone, split = generated(1, 1, 1)[0][name][0], generated(4, 4, 2)[0][name][0]
    return zip(alone, split, strict=True)


@pytest.mark.parametrize("name", ranks.FAMILIES)
def test_tokens_are_those_of_one_rank_and_log_probabilities_but_for_rounding(name):
    for (plain, _), (found, _) in both(name):
        assert plain.keys() == found.keys()
        for key, response in found.items():
            assert response.token_ids == plain[key].token_ids, key
            assert response.logprobs == pytest.approx(plain[key].logprobs, abs=1e-12)


@pytest.mark.parametrize("name", ranks.FAMILIES)
def test_a_replica_counts_and_hands_out_once_and_every_row_is_routed_once(name):
    # the second replica generates all, in the passes of one rank
    (plain, [alone]), (_, stats) = next(both(name))
    for counted in ("decoded_tokens", "prefilled_tokens"):
        assert [getattr(each, counted) for each in stats] == [0, 0, getattr(alone, counted), 0]
    assert alone.decoded_tokens == sum(len(response.token_ids) for response in plain.values())
    assert (sum(each.expert_load for each in stats) == alone.expert_load).all()
    assert all(each.passes == alone.passes for each in stats)
    handed = [found[name][1] for found in generated(4, 4, 2)]
    assert handed[1] == handed[3] == 0 and sum(handed) == 2 * len(plain)


@pytest.mark.parametrize("name", ranks.FAMILIES)
def test_a_rank_caches_its_own_heads_and_whole_latents(name):
    (_, [alone]), (_, stats) = next(both(name))
    parts = 1 if name == "deepseek_v3" else 2
    assert [each.peak_kv_bytes for each in stats] == [0, 0, *[alone.peak_kv_bytes // parts] * 2]
