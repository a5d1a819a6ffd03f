"""Replicas of several GPUs in the simulator: times and bytes by hand, and what counts replicas or GPUs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from flexfloor.config import compose, finite_numbers
from flexfloor.elastic.floor import RankMemory
from flexfloor.ledger.balance import check_tiling
from flexfloor.schedule.cost import PassLoad
from flexfloor.schedule.forecast import Wanted
from flexfloor.schedule.shrink import Standing
from flexfloor.simulate.decision import SimpleRule
from flexfloor.simulate.elasticity import Elasticity
from flexfloor.simulate.hardware import HARDWARE
from flexfloor.simulate.memory import modelled_memory
from flexfloor.simulate.models import MODELS
from flexfloor.simulate.policies import POLICIES
from flexfloor.simulate.resolve import recipe_memory, scenario_of
from flexfloor.simulate.roofline import Roofline
from flexfloor.simulate.run import simulate, training_of_released
from flexfloor.simulate.step import least_lease
from tests.unit.simulate.test_simulated_policies import scenario

MIXTRAL = MODELS["mixtral-8x7b"]


def test_a_pass_of_one_replica_by_hand():
    """Mixtral on two H200: 8 rows, of which each GPU sends 4 and hosts 4 of 8 experts.

    Each reads half of the dense weights, of 90.19 GB of experts and of the heads in the cache. In each of 32
    layers half of what is sent leaves the GPU, twice, and 8 rows of 8 KiB are summed up twice.
    """
    read, link, latency = 0.8 * 4.8e12, 380e9, 35e-6
    dense = (MIXTRAL.dense_parameters - 32_000 * 4096) / 2 * 2 / read
    experts = 90.194313216e9 / 2 * (1 - 0.75**8) / read
    cache = 10_000 * 131_072 / 2 / read
    exchange = 2 * 32 * (latency + 4 * 2 * 8192 / 2 / link)
    sums = 2 * 32 * (latency + 2 * (2 - 1) / 2 * 8 * 8192 / link)
    seconds = Roofline(MIXTRAL, HARDWARE["h200"], tp=2).pass_seconds(
        PassLoad(ranks=1, rows=8, joining=0, context=10_000)
    )
    assert seconds == pytest.approx(dense + experts + cache + exchange + sums, rel=1e-9)


def test_a_sum_over_four_ranks_sends_one_and_a_half_times_the_rows():
    cost = Roofline(MIXTRAL, HARDWARE["h100"], tp=4)
    assert cost.sum_seconds(100) == pytest.approx(35e-6 + 1.5 * 100 * 8192 / 380e9)
    assert Roofline(MIXTRAL, HARDWARE["h100"]).sum_seconds(100) == 0.0


def test_a_shrink_moves_experts_of_gpus_and_caches_of_replicas():
    """From 4 replicas of 2 to 2: each of 4 GPUs gets a second expert of 11.3 GB, and half of 1,000 tokens'
    caches with half of the heads."""
    seconds = Roofline(MIXTRAL, HARDWARE["h100"], tp=2).shrink_seconds(4, 2, 1000)
    moved = 90.194313216e9 / 8 + 1000 * 131_072 / 2 / 2
    assert seconds == pytest.approx(0.05 + moved / 380e9)
    over_network = Roofline(MIXTRAL, HARDWARE["h100"], tp=2).shrink_seconds(8, 4, 0)
    assert over_network == pytest.approx(0.05 + 90.194313216e9 / 8 / 50e9)


def test_training_pays_for_sums_forward_and_backward_and_what_is_run_again():
    """On each of 4 GPUs two sums of 8 KiB a layer and token, each way; once more where layers recompute."""
    plain = Roofline(MIXTRAL, HARDWARE["h100"], tp=4).train_seconds(1000.0)
    flops = 6 * MIXTRAL.active_parameters * 1000 / (0.35 * 989e12)
    summed = 4 * 2 * 32 * 1000 * 1.5 * 8192 / 380e9
    assert plain == pytest.approx(flops + 2 * summed)
    twice = replace(MIXTRAL, recomputed_parameters=MIXTRAL.active_parameters)
    again = Roofline(twice, HARDWARE["h100"], tp=4).train_seconds(1000.0)
    assert again == pytest.approx(flops * 8 / 6 + 3 * summed)


def test_heads_are_spread_over_a_replica_and_latents_are_not():
    assert MODELS["qwen3-30b-a3b"].kv_bytes_on_rank(4) == 98_304 // 4
    assert MODELS["deepseek-v3"].kv_bytes_on_rank(8) == 70_272


def test_bytes_of_a_rank_by_hand():
    """A row is on both ranks of its replica, of 4, and its experts' part on one rank of 8."""
    memory = modelled_memory(MIXTRAL, HARDWARE["h100"], 8, 0.85, tp=2)
    assert (memory.dense, memory.kv_token) == (MIXTRAL.dense_parameters, 131_072 // 2)
    assert memory.expert == 3 * 4096 * 14_336 * 32 * 2
    assert memory.row == (2 * 4 * 4096 + 2 * (4 * 4096 + 6 * 14_336)) * 2 // 8


def test_the_room_of_a_cache_by_hand():
    """Mixtral on 8 H100 of which 68 GB may be taken, four replicas of which each may have 256 sequences and
    8,192 joining tokens: workspace for those of all four, and logits of a replica's own."""
    made = scenario("mixtral-8x7b", cap=8000, tp=2, max_live=256)
    row = (2 * 4 * 4096 + 2 * (4 * 4096 + 6 * 14_336)) * 2 // 8
    held = MIXTRAL.dense_parameters + MIXTRAL.expert_bytes + 4 * (256 + 8192) * row + 256 * 10 * 32_000
    assert made.room == (68 * 10**9 - held) // (131_072 // 2) < 256 * 8128
    assert made.cost.tp == 2


def test_a_rung_of_replicas_that_host_what_fits_on_each_rank():
    """8 experts on 4 replicas of 2; a rank has room for 3 beside nothing else, so for 6 on one replica."""
    memory = RankMemory(budget=3, dense=0, expert=1, training=0, kv_token=0, row=0, logits=0)
    rule = SimpleRule(policy="greedy", sequences_per_rank=8, kv_tokens_per_rank=100)
    limits = {"longest": 10, "kv_tokens_per_rank": 100}
    group = Elasticity(rule, [1, 2, 3], memory=memory, num_experts=8, size=4, replica_size=2, **limits)
    assert group.hosted == [1] * 8
    standings = [Standing(unfinished=1, kv_tokens=5, finished=0, waiting_tokens=0, waiting=0)] * 4
    assert group.decide(standings, passes=1).size == 2
    group.shrink(standings, 3)
    assert sorted(group.hosted) == [1, 1, 1, 1, 2, 2], "on the six ranks of three replicas"
    assert group.decide(standings[:3], passes=1).size == 2
    group.shrink(standings[:3], 2)
    assert group.hosted == [2] * 4
    assert group.decide(standings[:2], passes=1).size == 2


@pytest.mark.parametrize("policy", POLICIES)
def test_both_ranks_of_a_replica_are_in_the_books_with_the_same_story(policy):
    """Two groups of two replicas on 8 GPUs."""
    of_two = scenario(ep=4, tp=2, prompts=12, overlap=False)
    [_, step] = simulate(of_two, POLICIES[policy], 2)
    check_tiling(step.records)
    assert [record.rank for record in step.records] == list(range(8))
    stories = [(record.intervals, record.released_s) for record in step.records]
    assert stories[::2] == stories[1::2] and len({str(story) for story in stories}) > 1
    assert step.tokens == int(of_two.trace.step(1).tokens.sum())
    assert step.occupied_s <= 8 * step.wall_s + 1e-9
    if POLICIES[policy].shrink == "never":
        assert step.occupied_s > 4 * step.wall_s and step.rank_passes % 4 == 0


def test_released_replicas_give_back_all_of_their_gpus():
    step = next(simulate(scenario("mixtral-8x7b", tp=2, overlap=False), POLICIES["greedy"], 1))
    released = [record.released_s for record in step.records]
    assert step.shrinks and released[0] is released[1] is None
    held = sum(step.wall_s if at is None else at - step.records[0].opened_s for at in released)
    assert step.occupied_s == pytest.approx(held)


def test_released_replicas_train_with_all_of_their_gpus():
    """On H200s two replicas of two hold Mixtral with its gradients: 270 GB of experts, 115 of them a GPU."""
    beside = scenario("mixtral-8x7b", hardware=HARDWARE["h200"], tp=2, overlap=True)
    steps = [next(simulate(each, POLICIES["greedy"], 1)) for each in (beside, replace(beside, overlap=False))]
    assert least_lease(beside) == 2 and beside.group_size == 4
    assert 0 < steps[0].hidden_s <= steps[0].hideable_s and steps[1].hidden_s == 0
    assert steps[0].step_s == pytest.approx(steps[1].step_s - steps[0].hidden_s / beside.num_gpus)
    early = [sum(each.is_early for each in record.intervals) for record in steps[0].records]
    assert early[::2] == early[1::2] and early[-1] > 0 and not any(early[:2])
    spent = sum(i.end_s - i.start_s for record in steps[0].records for i in record.intervals if i.is_early)
    assert spent == pytest.approx(steps[0].hidden_s), "in rank-seconds"


def test_a_replica_trains_as_fast_as_its_gpus_together():
    """100 prompts of 4 responses of 10 tokens with the prompt, but the longest tenth: 3,600 for one group."""
    wanted = Wanted(prompt_tokens=np.full(100, 4), lengths=np.full((100, 4), 6.0))
    for tp, size in ((1, 8), (2, 4)):
        made = scenario("mixtral-8x7b", hardware=HARDWARE["h200"], tp=tp)
        found = training_of_released(made, wanted)
        assert found.ranks == made.group_size == size
        assert found.rank_seconds == pytest.approx(3600 * made.cost.train_seconds(1.0) / tp)


def composed(*words):
    return compose(list(words), check=finite_numbers)


def test_a_recipe_has_its_own_replicas_and_a_published_model_those_that_are_asked_for():
    words = ["recipe=mixtral-8x7b", "parallel.tp=2", "elastic.rungs=[2,1]", "overlap=off"]
    made = scenario_of(composed(*words))
    assert (made.tp, made.group_size, made.num_replicas, made.rungs) == (2, 4, 4, (1, 2))
    assert made.room == 128 * 1024, (
        "half of the heads: as much memory holds twice the tokens, and all that may be live"
    )
    assert not made.overlap, "the recipe's is off"
    assert scenario_of(composed(*words[:-1])).overlap
    assert scenario_of(composed(*words, "simulate.tp=4")).tp == 4
    assert scenario_of(composed("parallel.tp=2", "parallel.ep=2")).tp == 1
    assert scenario_of(composed("simulate.tp=2")).open_rungs() == (1, 2, 3)


def test_the_memory_table_is_that_of_the_simulated_replicas():
    config = composed("recipe=mixtral-8x7b", "simulate.tp=4")
    whole, part = recipe_memory(composed("recipe=mixtral-8x7b"), 8), recipe_memory(config, 8)
    assert (part.dense, part.experts) == (whole.dense // 4, whole.experts)
    assert part.optimizer == whole.optimizer and scenario_of(config).memory.dense == part.dense
