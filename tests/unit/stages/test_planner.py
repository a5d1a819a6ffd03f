"""What a run plans of what it has seen: the same on every rank, and as before after a resume."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from flexfloor.config.compose import compose
from flexfloor.data.types import Prompt
from flexfloor.errors import DataError
from flexfloor.parallel import Layout
from flexfloor.rollout.types import Response, RolloutStats, ShrinkSample
from flexfloor.schedule.cost import PassLoad
from flexfloor.schedule.fitted_cost import PassSample
from flexfloor.stages.planner import COST_FILE, HISTORY_FILE, Planner
from flexfloor.train.plain_data import read_plain, write_plain

N = 4
PROMPTS = [
    Prompt(uid=f"p{i}", data_source="", text="", token_ids=(1,) * (5 + i), ground_truth="") for i in range(6)
]


def planner(*words: str, rank: int = 0, tp_size: int = 1) -> Planner:
    config = compose(["recipe=tiny-mixtral", *words])
    layout = Layout(
        world_size=4,
        rank=rank,
        tp_size=tp_size,
        tp_rank=rank % tp_size,
        dp_size=4 // tp_size,
        dp_rank=rank // tp_size,
        ep_size=config.parallel.ep,
        ep_rank=rank % config.parallel.ep,
        edp_size=4 // config.parallel.ep,
        edp_rank=0,
        ep_index=0,
    )
    return Planner(config, layout)


def seen(lengths: dict[str, int]) -> list[Response]:
    return [
        Response(
            uid=uid, response_index=i, token_ids=(7,) * length, logprobs=(0.0,) * length, finish_reason="eos"
        )
        for uid, length in lengths.items()
        for i in range(N)
    ]


def stats(seconds: float = 0.5) -> list[RolloutStats]:
    """Of four ranks, of which only the first is believed."""
    load = PassLoad(ranks=4, rows=8.0, joining=0.0, context=100.0)
    usual = {field.name: 0 for field in dataclasses.fields(RolloutStats)}
    return [
        RolloutStats(
            **usual
            | {
                "pass_samples": (PassSample(load=load, seconds=seconds * (1 + 99 * (rank > 0))),) * 20,
                "alone_samples": (PassSample(load=load, seconds=4 * seconds * (1 + 99 * (rank > 0))),),
                "shrink_samples": (ShrinkSample(before=4, after=1, moved_tokens=64, seconds=0.25),),
            }
        )
        for rank in range(4)
    ]


LENGTHS = {"p0": 3, "p1": 30, "p2": 4, "p3": 28, "p4": 3, "p5": 29}


def dealt(planned: Planner) -> list[list[tuple[int, int]]]:
    return planned.deal(PROMPTS, planned.predict(PROMPTS), N, {})


@pytest.mark.parametrize("policy", ["static", "longest_first", "flexfloor"])
def test_every_rank_deals_every_response_once_and_alike(policy):
    plans = []
    for rank in range(4):
        planned = planner(f"schedule={policy}", rank=rank)
        planned.learn(seen(LENGTHS), stats(), 1)
        plans.append(dealt(planned))
    assert all(plan == plans[0] for plan in plans)
    found = sorted(each for queue in plans[0] for each in queue)
    assert found == [(prompt, i) for prompt in range(6) for i in range(N)]


@pytest.mark.parametrize("policy", ["static", "flexfloor"])
def test_the_ranks_of_a_replica_have_one_queue(policy):
    planned = planner(f"schedule={policy}", "parallel.ep=4", "parallel.tp=2", tp_size=2)
    planned.learn(seen(LENGTHS), stats(), 1)
    queues = dealt(planned)
    assert len(queues) == 2
    assert sorted(each for queue in queues for each in queue) == [(p, i) for p in range(6) for i in range(N)]


def test_static_follows_the_data_whatever_was_seen():
    planned = planner("schedule=static")
    planned.learn(seen(LENGTHS), stats(), 1)
    assert [sorted({prompt for prompt, _ in queue}) for queue in dealt(planned)] == [[0, 1], [2, 3], [4], [5]]
    assert [queue[0][0] for queue in dealt(planned)] == [0, 2, 4, 5]


def test_longest_first_keeps_the_ranks_and_turns_the_order():
    planned = planner("schedule=longest_first")
    planned.learn(seen(LENGTHS), stats(), 1)
    assert [[prompt for prompt, _ in queue][::N] for queue in dealt(planned)] == [[1, 0], [3, 2], [4], [5]]


def test_flexfloor_spreads_what_was_long_where_ranks_generate_few_at_a_time():
    planned = planner("schedule=flexfloor", "rollout.max_live_sequences=4")
    lengths = {"p0": 30, "p1": 29, "p2": 3, "p3": 3, "p4": 3, "p5": 3}
    planned.learn(seen(lengths), stats(), 1)
    of_ranks = [{prompt for prompt, _ in queue} for queue in dealt(planned)]
    assert not any({0, 1} <= prompts for prompts in of_ranks)
    assert [queue[0][0] for queue in dealt(planned) if {0, 1} & {p for p, _ in queue}] == [0, 1]


def test_costs_are_those_of_the_rank_that_stayed_to_the_end():
    planned = planner()
    planned.learn(seen(LENGTHS), stats(0.5), 1)
    load = PassLoad(ranks=4, rows=8.0, joining=0.0, context=100.0)
    assert planned.costs.pass_seconds(load) == pytest.approx(0.5, rel=0.2)
    alone = planned.costs.pass_seconds(dataclasses.replace(load, ranks=1))
    assert planned.costs.num_samples()["alone"] == 1
    assert planned.costs.alone_seconds(load) == pytest.approx(4 * 0.5) != alone
    assert planned.costs.num_samples()["shrinks"] == 1


def test_a_run_explores_until_it_has_seen_a_shrink():
    planned = planner()
    beliefs = planned.predict(PROMPTS)
    assert planned.guidance(PROMPTS, beliefs, {}).explores
    planned.learn(seen(LENGTHS), stats(), 1)
    assert not planned.guidance(PROMPTS, beliefs, {}).explores


def test_a_resumed_planner_plans_as_the_first_would_have(tmp_path):
    first = planner()
    first.learn(seen(LENGTHS), stats(), 1)
    write_plain(tmp_path / "state", first.state_dict())
    second = planner()
    second.load_state_dict(read_plain(tmp_path / "state"))
    assert dealt(second) == dealt(first)
    for each in (first, second):
        each.learn(seen({uid: 33 - length for uid, length in LENGTHS.items()}), stats(0.1), 2)
    assert dealt(second) == dealt(first)
    load = PassLoad(ranks=2, rows=3.0, joining=9.0, context=50.0)
    assert second.costs.pass_seconds(load) == first.costs.pass_seconds(load)


@pytest.mark.parametrize(
    ("words", "tp_size", "reason"),
    [
        (["parallel.tp=2"], 2, "parallel.tp=1, and it is 2 here"),
        (["parallel.ep=2"], 1, "parallel.ep=4, and it is 2 here"),
        (["model.dtype=float64"], 1, "model.dtype=float32, and it is float64 here"),
        (["model.hidden_size=32"], 1, "model.hidden_size=128, and it is 32 here"),
    ],
)
def test_costs_of_another_layout_or_model_are_left_aside_and_lengths_are_not(
    words, tp_size, reason, tmp_path, caplog
):
    first = planner()
    first.learn(seen(LENGTHS), stats(), 1)
    write_plain(tmp_path / "state", first.state_dict())
    second = planner(*words, tp_size=tp_size)
    second.load_state_dict(read_plain(tmp_path / "state"))
    assert not any(second.costs.num_samples().values())
    assert f"costs are left aside, and measured anew: they were measured under {reason}" in caplog.text
    found, expected = (each.predict(PROMPTS).quantile(0.5, 32) for each in (second, first))
    assert (found == expected).all()


def test_costs_that_do_not_say_what_they_are_of_are_left_aside(caplog):
    first, second = planner(), planner()
    first.learn(seen(LENGTHS), stats(), 1)
    state = first.state_dict()
    del state["costs"]["under"]
    second.load_state_dict(state)
    assert not any(second.costs.num_samples().values())
    assert "does not say under which model and layout" in caplog.text


def test_one_rank_tells_for_all_that_costs_are_left_aside(caplog):
    other = planner("parallel.ep=2", rank=1)
    other.load_state_dict(planner().state_dict())
    assert not caplog.text


def test_what_is_left_in_the_folder_serves_another_run(tmp_path):
    first = planner()
    first.learn(seen(LENGTHS), stats(), 1)
    first.write(tmp_path)
    second = planner(f"schedule.history_path={tmp_path / HISTORY_FILE}")
    assert np.allclose(
        second.predict(PROMPTS).quantile(0.5, 32), first.predict(PROMPTS).quantile(0.5, 32), atol=1
    )
    costs = json.loads((tmp_path / COST_FILE).read_text())
    assert costs["shrinks"] and costs["under"]["parallel.ep"] == 4


def test_a_missing_history_is_refused_by_its_field(tmp_path):
    with pytest.raises(DataError, match=r"schedule\.history_path.*nowhere\.parquet"):
        planner(f"schedule.history_path={tmp_path / 'nowhere.parquet'}")


@pytest.mark.parametrize(
    ("words", "guided", "rebalances"),
    [
        (["schedule=static", "elastic=off"], False, False),
        (["schedule=static", "elastic=on"], True, False),
        (["schedule=flexfloor", "elastic=off"], True, True),
        (["schedule=longest_first", "elastic.policy=greedy"], False, False),
    ],
)
def test_guidance_is_given_where_it_is_needed(words, guided, rebalances):
    planned = planner(*words)
    guidance = planned.guidance(PROMPTS, planned.predict(PROMPTS), {})
    assert (guidance is not None) == guided
    assert not guided or guidance.rebalances == rebalances
