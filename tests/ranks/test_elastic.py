"""Shrinking on real ranks: the same tokens, every expert available, nothing lost and nothing left behind."""

import functools

import numpy as np
import pytest
import rollout_ranks as ranks

from flexfloor import parallel
from flexfloor.launch import run_ranks

LAYOUTS = {"mixtral": [(2, 2), (4, 4), (4, 2)], "deepseek_v3": [(2, 2), (3, 3)]}
REFERENCE_LAYOUTS = {ranks.TWELVE_EXPERTS: [(2, 2), (3, 3), (4, 4)], "deepseek_v3": [(2, 2), (3, 3), (4, 4)]}
TOP_K = {"mixtral": 2, ranks.TWELVE_EXPERTS: 2, "deepseek_v3": 4}
GREEDY = {"policy": "greedy", "interval": 1}
DETACH = {"policy": "idle", "interval": 2, "detach": True}
WAYS = {
    "every rung": {"elastic": GREEDY},
    "as early as can be": {"elastic": GREEDY | {"interval": 2, "sequences_per_rank": 21}},
    "late": {"elastic": GREEDY | {"interval": 3, "sequences_per_rank": 2}},
    "when idle": {"elastic": GREEDY | {"policy": "idle"}, "deal": "longest first"},
    "only to one rank": {"elastic": GREEDY | {"rungs": [1], "sequences_per_rank": 7}},
    "while others wait": {"elastic": GREEDY | {"sequences_per_rank": 21}, "max_live": 2},
    "all on the last rank": {"elastic": GREEDY | {"sequences_per_rank": 21}, "deal": "last rank"},
    "yielding": {
        "elastic": GREEDY | {"sequences_per_rank": 21},
        "kv_budget_bytes": 32_000,
        "deal": "backwards",
    },
    "detached": {"elastic": DETACH},
    "detached, shrunk before": {"elastic": DETACH | {"policy": "greedy", "sequences_per_rank": 11}},
    "detached, all on the last rank": {"elastic": DETACH, "deal": "last rank"},
    "detached, others wait": {"elastic": DETACH, "max_live": 2},
    "detached, yielding": {"elastic": DETACH, "kv_budget_bytes": 32_000, "deal": "backwards"},
}
REFERENCE_WAYS = {
    f"{way}, reference path": WAYS[way] | {"path": "reference"}
    for way in ("every rung", "as early as can be", "when idle", "detached", "detached, shrunk before")
}


def generate_all_ways(ep_size, dtype, name, path):
    from flexfloor.elastic.ladder import make_ladder

    model = ranks.new_model(ep_size, dtype, name)
    ladders = {}
    found = {"fixed": ranks.generate(model, path="fast", deal="by response")}
    for way, how in (WAYS if path == "fast" else REFERENCE_WAYS).items():
        rungs = how["elastic"].get("rungs", [])
        rungs = [rung for rung in rungs if rung < ep_size]
        if tuple(rungs) not in ladders:
            ladders[tuple(rungs)] = make_ladder(parallel.groups().ep, rungs, timeout_seconds=60, alone=True)
        usual = {"path": "fast", "deal": "by response"}
        found[way] = ranks.generate(model, ladder=ladders[tuple(rungs)], **usual | how)
    return found


@functools.cache
def generated(path, name, world_size, ep_size, dtype="float64"):
    arguments = (ep_size, dtype, name, path)
    return run_ranks(
        generate_all_ways, world_size, *arguments, threads_per_rank=1, total_timeout_seconds=200
    )[0]


QUICK = [
    ("fast", "mixtral", 4, 4),
    ("fast", "mixtral", 4, 2),
    ("fast", "deepseek_v3", 3, 3),
    ("reference", ranks.TWELVE_EXPERTS, 3, 3),
    ("reference", "deepseek_v3", 4, 4),
]
"""Runs by default; all by `make test-slow`."""
RUNS = [
    pytest.param(run, marks=() if run in QUICK else pytest.mark.slow)
    for path, of_path in (("fast", LAYOUTS), ("reference", REFERENCE_LAYOUTS))
    for name, layouts in of_path.items()
    for layout in layouts
    for run in [(path, name, *layout)]
]


@pytest.mark.parametrize("run", RUNS, ids=str)
def test_float64_tokens_are_exactly_those_of_the_fixed_group(run):
    found = generated(*run)
    expected = {key: response.token_ids for key, response in found["fixed"][0].items()}
    assert len(expected) == 21
    for way, (responses, stats) in found.items():
        assert {key: response.token_ids for key, response in responses.items()} == expected, way
        for key, response in responses.items():
            assert response.logprobs == pytest.approx(found["fixed"][0][key].logprobs, abs=1e-12), (way, key)
        assert any(each.shrinks for each in stats) == (way != "fixed"), way


@pytest.mark.parametrize("run", RUNS, ids=str)
def test_every_row_reaches_each_of_its_experts_once(run):
    for way, (_, stats) in generated(*run).items():
        counts = np.sum([each.expert_load for each in stats], axis=0)
        told = {
            name: sum(getattr(each, name) for each in stats)
            for name in ("prefilled_tokens", "recomputed_tokens", "decoded_tokens", "preemptions")
        }
        # a token that comes from a prefill has no row of its own, and a response's last one is never fed
        rows = sum(told.values()) - 2 * told["preemptions"] - 21
        assert (counts.sum(axis=1) == TOP_K[run[1]] * rows).all(), way


@pytest.mark.parametrize("run", RUNS, ids=str)
def test_ranks_leave_from_the_top_and_what_they_had_moves(run):
    _, _, world_size, ep_size = run
    for way, (_, stats) in generated(*run).items():
        if way.startswith("detached"):
            continue
        for first in range(0, world_size, ep_size):
            group = stats[first : first + ep_size]
            sizes = [size for _, size in group[0].active_ranks]
            assert sizes == sorted(set(sizes), reverse=True) and sizes[0] == ep_size, (way, sizes)
            assert [each.is_released for each in group] == [p >= sizes[-1] for p in range(ep_size)], way
            for position, each in enumerate(group):
                seen = [size for size in sizes if size > position]
                own = [size for _, size in each.active_ranks]
                assert own[: len(seen)] == seen and len(own) <= len(seen) + 1, (way, position)
            assert [each.passes for each in group] == sorted((e.passes for e in group), reverse=True), way
    early = next(stats for way, (_, stats) in generated(*run).items() if way.startswith("as early"))
    assert sum(each.moved_sequences for each in early) > 0
    assert sum(each.passes for each in early) < sum(each.passes for each in generated(*run)["fixed"][1])


def going_on_alone(way, world_size, ep_size):
    """Which ranks generate the rest by themselves."""
    if way == "detached, all on the last rank":
        # the others of its group get an even share of what it has
        return [rank // ep_size == (world_size - 1) // ep_size for rank in range(world_size)]
    if way == "detached, shrunk before":
        # of two groups of two ranks each goes to one, and then there is nobody to part from
        return [ep_size == world_size and rank < 2 for rank in range(world_size)]
    return [way.startswith("detached")] * world_size


@pytest.mark.parametrize("run", RUNS, ids=str)
def test_ranks_of_a_group_that_detached_leave_at_their_own_end(run):
    path, _, world_size, ep_size = run
    reference = ", reference path" if path == "reference" else ""
    for way, (_, stats) in generated(*run).items():
        expected = going_on_alone(way.removesuffix(reference), world_size, ep_size)
        assert [each.is_detached for each in stats] == expected, way
        assert all(each.is_released for each in stats if each.is_detached), way
    responses, stats = generated(*run)["detached" + reference]
    lengths = {key: len(response.token_ids) for key, response in responses.items()}
    for rank, each in enumerate(stats):
        own = {lengths[request.uid, request.response_index] for request in ranks.requests()[rank::world_size]}
        # all are live from the first pass on, and each pass brings each of them a token
        moves = any(other.moved_sequences for other in stats)
        assert each.passes in (set(lengths.values()) if moves else {max(own)})
        # the few that end before ranks part make their numbers uneven
        assert each.moved_sequences <= 1 and each.moved_bytes > 0
    assert max(each.passes for each in stats) == max(lengths.values())
