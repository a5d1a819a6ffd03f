"""Whole simulated runs: what must hold between policies, and that memory holds at every moment."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flexfloor.errors import ConfigError
from flexfloor.ledger.balance import check_tiling
from flexfloor.ledger.metrics import occupation
from flexfloor.simulate.comparison import result_of
from flexfloor.simulate.deal import longest_first
from flexfloor.simulate.group import Group
from flexfloor.simulate.hardware import HARDWARE
from flexfloor.simulate.knowledge import FromHistory, NoKnowledge, OfOracle
from flexfloor.simulate.lengths import DrawnLengths, StepLengths
from flexfloor.simulate.models import MODELS
from flexfloor.simulate.policies import POLICIES
from flexfloor.simulate.run import simulate
from flexfloor.simulate.scenario import Scenario


def scenario(model="qwen3-30b-a3b", prompts=24, n=4, cap=3000, **changes):
    settings_ = {
        "model": MODELS[model],
        "hardware": HARDWARE["h100"],
        "num_gpus": 8,
        "ep": 8,
        "trace": DrawnLengths(num_prompts=prompts, num_responses=n, median=300, cap=cap),
        "prompt_tokens": 128,
    }
    return Scenario(**(settings_ | changes))


@pytest.mark.parametrize("policy", POLICIES)
def test_the_books_of_every_policy_balance(policy):
    two_groups = scenario(num_gpus=8, ep=4)
    steps = list(simulate(two_groups, POLICIES[policy], 2))
    for epoch, step in enumerate(steps):
        check_tiling(step.records)
        held = occupation(step.records)
        assert step.tokens == int(two_groups.trace.step(epoch).tokens.sum())
        assert held.occupied_s <= 8 * held.wall_s + 1e-9 and held.idle_s <= held.occupied_s
        assert step.step_s >= step.wall_s and 0 <= step.overlapped_tokens <= step.trained_tokens
    assert steps[1].records[0].opened_s == pytest.approx(steps[0].step_s)


@pytest.mark.parametrize("policy", POLICIES)
def test_the_same_scenario_gives_the_same_outcome(policy):
    one, other = (list(simulate(scenario(prompts=8), POLICIES[policy], 2)) for _ in range(2))
    assert one == other


@pytest.fixture
def watched(monkeypatch):
    """Every group that runs, with the bytes of each rank checked before and after each stretch of passes."""
    seen = []
    write = Group._write

    def checked(self, count, live, joined):
        for rank, replica in enumerate(self.replicas[: self.size]):
            for at in (self.passes, self.passes + count - 1):
                assert 0 <= replica.stored(at) <= replica.room
                if self.elasticity:
                    memory, ranks = self.elasticity.memory, self.elasticity.replica_size
                    cache = replica.stored(at) * memory.kv_token
                    for each in range(rank * ranks, (rank + 1) * ranks):
                        hosted = len(self.elasticity.placement.hosted_by(each))
                        assert memory.dense + hosted * memory.expert + cache <= memory.budget
            seen.append(self)
        write(self, count, live, joined)

    monkeypatch.setattr(Group, "_write", checked)
    return seen


@pytest.mark.parametrize("policy", ["greedy", "flexfloor", "oracle"])
@pytest.mark.parametrize(("model", "tp"), [("mixtral-8x7b", 1), ("qwen3-30b-a3b", 1), ("mixtral-8x7b", 2)])
def test_memory_holds_at_every_moment(watched, policy, model, tp):
    tight = scenario(model, usable_share=0.4 if model == "mixtral-8x7b" else 0.25, prompts=40, tp=tp)
    eager = replace(POLICIES[policy], objective="occupancy", max_slowdown=1.0)
    steps = list(simulate(tight, eager, 2))
    assert watched and sum(step.shrinks for step in steps) > 0
    sizes = {each.after for group in watched for each in group.shrinks}
    assert 1 not in sizes, "one replica cannot hold all experts in so little"


def test_more_memory_lets_a_group_shrink_further():
    least = []
    for share in (0.3, 0.5, 0.95):
        hardware = replace(HARDWARE["h200"], memory_bytes=141e9 * share)
        steps = list(
            simulate(scenario("mixtral-8x7b", hardware=hardware, usable_share=1.0), POLICIES["greedy"], 1)
        )
        least.append(min(step.rank_passes for step in steps))
    assert least[0] > least[1] > least[2]


def test_the_oracle_never_loses_to_paged_nor_flexfloor_by_much():
    for seed in range(3):
        trace = DrawnLengths(num_prompts=24, num_responses=4, median=300, cap=3000, seed=seed)
        same = scenario(trace=trace)
        paged, flexfloor, oracle = (
            result_of(same, POLICIES[name], 3) for name in ("paged", "flexfloor", "oracle")
        )
        assert oracle.throughput >= 0.99 * paged.throughput
        assert flexfloor.throughput >= 0.99 * paged.throughput
        assert flexfloor.throughput <= 1.02 * oracle.throughput
        assert oracle.tokens_per_occupied > paged.tokens_per_occupied


def test_reserving_the_greatest_length_costs_time_where_memory_is_tight():
    tight = scenario(usable_share=0.17, prompts=64, n=8)
    paged, reserved = (result_of(tight, POLICIES[name], 1) for name in ("paged", "reserved"))
    assert reserved.mean("preemptions") == 0 < paged.mean("preemptions")
    assert reserved.throughput < paged.throughput


def test_more_occupied_time_buys_no_time_back():
    """A guided group that may be slower is, and holds fewer rank-seconds."""
    guided = POLICIES["flexfloor"]
    slow = replace(guided, objective="occupancy", max_slowdown=0.3)
    fast, frugal = (result_of(scenario(), policy, 2) for policy in (guided, slow))
    assert frugal.tokens_per_occupied > fast.tokens_per_occupied
    assert frugal.throughput < fast.throughput
    assert frugal.wall_s <= 1.4 * fast.wall_s


def test_overlap_shortens_the_step_and_nothing_else():
    beside, after = (
        next(simulate(scenario(overlap=overlap), POLICIES["greedy"], 1)) for overlap in (True, False)
    )
    assert beside.wall_s == after.wall_s and beside.occupied_s == after.occupied_s
    assert beside.step_s < after.step_s and after.overlapped_tokens == 0 < beside.overlapped_tokens
    saved = (after.step_s - beside.step_s) * 8
    assert beside.plain_step_s == after.plain_step_s == after.step_s
    assert beside.hidden_s == pytest.approx(saved) and beside.training_s == after.training_s
    assert 0 < beside.hidden_s <= beside.hideable_s <= 8 * beside.wall_s - beside.occupied_s + 1e-9
    early = sum(i.seconds for r in beside.records for i in r.intervals if i.is_early)
    assert early == pytest.approx(beside.hidden_s), "the records hold what the figures say"
    assert not any(i.is_early for r in after.records for i in r.intervals)
    assert saved == pytest.approx(scenario().cost.train_seconds(beside.overlapped_tokens))


def test_nothing_can_hide_beside_a_fixed_group():
    fixed = result_of(scenario(num_gpus=16), POLICIES["paged"], 2)
    assert fixed.mean("hideable_s") == 0.0 and fixed.hidden_share == 1.0 == fixed.overlap_step_ratio


def test_what_no_lease_can_hold_changes_no_decision():
    """Gradients of DeepSeek-V3 fit on no 64 of these GPUs, so that a rank that leaves could train nothing."""
    guided = replace(POLICIES["flexfloor"], objective="step_time")
    large = {"hardware": HARDWARE["h200"], "num_gpus": 64, "ep": 64, "prompts": 64}
    on, off = (
        result_of(scenario("deepseek-v3", overlap=overlap, **large), guided, 2) for overlap in (True, False)
    )
    assert on.mean("hidden_s") == 0.0
    assert on.step_s == off.step_s


@settings(max_examples=8, deadline=None)
@given(st.sampled_from([name for name in POLICIES if name != "greedy"]), st.integers(0, 99))
def test_more_bandwidth_is_never_slower(policy, seed):
    trace = DrawnLengths(num_prompts=8, num_responses=4, median=100, cap=600, seed=seed)
    fixed = replace(POLICIES[policy], shrink="never")
    slow, fast = (
        scenario(trace=trace, hardware=HARDWARE[name], usable_share=share)
        for name, share in (("h800", 0.6), ("h100", 0.6))
    )
    walls = [next(simulate(each, fixed, 1)).wall_s for each in (slow, fast)]
    assert walls[1] <= walls[0]


def test_extremes():
    def run(**trace):
        drawn = DrawnLengths(**({"num_prompts": 16, "num_responses": 2, "median": 50, "cap": 200} | trace))
        return [result_of(scenario(trace=drawn), policy, 2) for policy in POLICIES.values()]

    for results in (
        run(num_prompts=1),
        run(num_prompts=3, num_responses=1),
        run(p90_over_p50=1.0),
        run(cap_share=1.0),
        run(cap=1),
    ):
        assert all(each.throughput > 0 for each in results)
    assert [each.tokens for each in result_of(scenario(), POLICIES["paged"], 1).steps] == [
        int(scenario().trace.step(0).tokens.sum())
    ]


def lengths(*tokens, n):
    count = len(tokens)
    return StepLengths(
        uids=tuple(map(str, range(count // n))),
        prompt=np.arange(count) // n,
        tokens=np.array(tokens),
        truncated=np.zeros(count, dtype=bool),
    )


def test_only_the_oracle_knows_a_step_before_it():
    def expected(knowledge, step):
        return knowledge.wanted(step, 5).lengths

    step = lengths(10, 20, 700, 800, n=2)
    assert expected(OfOracle(1000), step).ravel().tolist() == [10, 20, 700, 800]
    assert len(set(expected(NoKnowledge(), step).ravel())) == 1
    history = FromHistory(1000)
    before = np.sort(expected(history, step))
    assert (before == before[0]).all(), "prompts that were never seen are alike"
    assert (np.sort(expected(history, lengths(1, 2, 3, 4, n=2))) == before).all()
    history.learn(step, 0)
    short, long = expected(history, step).mean(axis=1)
    assert 8 < short < 40 and 400 < long < 950


def test_prompts_with_unequal_numbers_of_responses_are_planned_too():
    step = StepLengths(
        uids=("a", "b"),
        prompt=np.array([0, 1, 1]),
        tokens=np.array([5, 6, 7]),
        truncated=np.zeros(3, dtype=bool),
    )
    assert FromHistory(100).wanted(step, 5).lengths.shape == (3, 1)


def test_each_replica_may_begin_with_its_longest():
    wanted = OfOracle(1000).wanted(lengths(10, 20, 700, 800, n=2), 5)
    assert longest_first([[0, 1, 2], [3]], wanted) == [[2, 1, 0], [3]]


def test_a_model_without_room_for_one_sequence_is_refused():
    with pytest.raises(ConfigError, match=r"simulate\.ep = 8: must be more, for deepseek-v3"):
        list(simulate(scenario("deepseek-v3"), POLICIES["paged"], 1))
