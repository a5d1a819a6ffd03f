"""Queues: complete, deterministic, never forecast to be worse than the order of the data."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexfloor.schedule.forecast import Replicas, Wanted, forecast_seconds, places
from flexfloor.schedule.plan import DEALS, plan_queues
from tests.unit.schedule.test_frontier import Linear

COSTS = Linear(a_pass=1.0, a_row=0.01)


def replicas(count: int, *, group_size: int | None = None, sequences: int = 64, kv: int = 10**9) -> Replicas:
    return Replicas(count=count, group_size=group_size or count, sequences=sequences, kv_tokens=kv)


def wanted(lengths, prompt_tokens: int = 10) -> Wanted:
    lengths = np.asarray(lengths, dtype=float)
    return Wanted(prompt_tokens=np.full(len(lengths), prompt_tokens), lengths=lengths)


tables = st.integers(0, 12).flatmap(
    lambda count: st.lists(
        st.lists(st.floats(1, 400), min_size=3, max_size=3), min_size=count, max_size=count
    )
)


@given(tables, st.sampled_from([(1, 1), (2, 2), (4, 2), (6, 3)]), st.integers(1, 9))
def test_every_response_is_dealt_once_and_alike_everywhere(table, shape, sequences):
    count, group_size = shape
    asked = wanted(np.array(table).reshape(-1, 3))
    who = replicas(count, group_size=group_size, sequences=sequences)
    plan = plan_queues(asked, who, COSTS)
    assert sorted(np.concatenate(plan.queues).tolist()) == list(range(3 * len(table)))
    again = plan_queues(asked, who, COSTS)
    assert [queue.tolist() for queue in again.queues] == [queue.tolist() for queue in plan.queues]
    in_order = plan_queues(asked, who, COSTS, deals=["in order"])
    assert plan.seconds <= in_order.seconds
    assert np.isfinite(plan.seconds)


def test_the_longest_prompts_start_first_and_spread_over_replicas():
    plan = plan_queues(wanted([[10], [400], [20], [390]]), replicas(2), COSTS, deals=["whole groups"])
    assert [queue.tolist() for queue in plan.queues] == [[1, 0], [3, 2]]


def test_one_by_one_spreads_the_siblings_of_a_long_prompt():
    plan = plan_queues(wanted([[400, 400], [10, 10]]), replicas(2), COSTS, deals=["one by one"])
    assert [queue.tolist() for queue in plan.queues] == [[0, 2], [1, 3]]


def test_whole_groups_win_where_prefill_costs_and_single_responses_where_it_does_not():
    long_prompts = wanted(np.full((4, 4), 50.0), prompt_tokens=10_000)

    class Dear(Linear):
        def pass_seconds(self, load):
            return 1.0 + 0.01 * load.rows + 0.001 * load.joining

    assert plan_queues(long_prompts, replicas(4), Dear(), deals=DEALS[:2]).deal == "whole groups"
    uneven = wanted([[400.0] * 4, [10.0] * 4])
    assert plan_queues(uneven, replicas(4, sequences=1), Dear(), deals=DEALS[:2]).deal == "one by one"


@pytest.mark.parametrize(
    ("lengths", "sequences", "expected"),
    [
        ([[100], [50]], 2, 100 * 1.01 + 50 * 0.01),  # two rows for 50 passes, then one
        ([[100], [50]], 1, 150 * 1.01),  # one after the other
        ([[60], [60], [60]], 2, 60 * 1.02 + 60 * 1.01),
    ],
)
def test_forecasts_of_one_replica_by_hand(lengths, sequences, expected):
    asked = wanted(lengths)
    queue = [np.arange(len(lengths))]
    found = forecast_seconds(queue, asked, replicas(1, sequences=sequences), COSTS)
    assert found == pytest.approx(expected, rel=0.01)


def test_all_replicas_of_a_group_wait_for_the_longest_and_groups_do_not():
    asked = wanted([[100], [10]])
    queues = [np.array([0]), np.array([1])]
    together = forecast_seconds(queues, asked, replicas(2, group_size=2), COSTS)
    assert together == pytest.approx(100 * 1.01, rel=0.01)
    assert forecast_seconds(queues, asked, replicas(2, group_size=1), COSTS) == pytest.approx(together)


def test_places_follow_the_cache():
    # 10 + 3/4 of 100 tokens each
    assert places(wanted([[100]]), replicas(1, kv=850)) == 10
    assert places(wanted([[100]]), replicas(1, kv=1)) == 1
    assert places(wanted([[100]]), replicas(1, kv=10**6, sequences=5)) == 5


def test_nothing_to_generate_takes_no_time():
    plan = plan_queues(wanted(np.zeros((0, 4))), replicas(3), COSTS)
    assert plan.seconds == 0
    assert [len(queue) for queue in plan.queues] == [0, 0, 0]
