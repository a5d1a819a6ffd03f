"""Whole replicas leave a group: the same tokens, with sequences and experts moved from rank to rank."""

import forced_lengths
import numpy as np
import pytest
import rollout_ranks as ranks
from guidance_ranks import learned

TP = 2
GREEDY = {"policy": "greedy", "interval": 2, "sequences_per_rank": 21}
WAYS = {
    "as early as can be": {"elastic": GREEDY},
    "reference path": {"elastic": GREEDY, "path": "reference"},
    "every rung": {"elastic": GREEDY | {"interval": 1, "sequences_per_rank": 7}},
    "yielding": {"elastic": GREEDY, "kv_budget_bytes": 32_000, "deal": "backwards"},
    "when idle": {"elastic": {"policy": "idle", "interval": 1}, "deal": "longest first"},
    "guided": {"elastic": {"policy": "guided", "interval": 1}, "guidance": learned()},
    "queues even out": {
        "elastic": {"policy": "guided", "interval": 2},
        "guidance": learned(),
        "deal": "last rank",
        "max_live": 4,
    },
}


def generate_all_ways(ep_size, name):
    return forced_lengths.generate_ways(WAYS, ep_size, name, tp_size=TP)


generated = forced_lengths.started(generate_all_ways)
RUNS = [
    ("deepseek_v3", 4, 4),
    pytest.param(("mixtral", 4, 4), marks=pytest.mark.slow),
    pytest.param((ranks.TWELVE_EXPERTS, 6, 6), marks=pytest.mark.slow),
    pytest.param(("mixtral", 8, 4), marks=pytest.mark.slow),
]
in_runs = pytest.mark.parametrize("run", RUNS, ids=str)


@in_runs
def test_float64_tokens_are_exactly_those_of_the_fixed_group(run):
    forced_lengths.require_tokens_of_the_fixed_group(generated(*run))


@in_runs
def test_every_row_reaches_each_of_its_experts_once_and_is_counted_by_one_rank(run):
    for way, (_, stats) in generated(*run).items():
        counts = np.sum([each.expert_load for each in stats], axis=0)
        told = {
            name: sum(getattr(each, name) for each in stats)
            for name in ("prefilled_tokens", "recomputed_tokens", "decoded_tokens", "preemptions")
        }
        assert told["decoded_tokens"] == sum(forced_lengths.LENGTHS)
        # a token that comes from a prefill has no row of its own, and a response's last one is never fed
        rows = sum(told.values()) - 2 * told["preemptions"] - 21
        top_k = 4 if run[0] == "deepseek_v3" else 2
        assert (counts.sum(axis=1) == top_k * rows).all(), way


@in_runs
def test_replicas_leave_whole_and_from_the_top(run):
    _, world_size, ep_size = run
    for way, (_, stats) in generated(*run).items():
        for first in range(0, world_size, ep_size):
            group = stats[first : first + ep_size]
            sizes = [size for _, size in group[0].active_ranks]
            assert sizes == sorted(set(sizes), reverse=True) and sizes[0] == ep_size, (way, sizes)
            stays = way == "fixed" or not any(each.passes for each in group)
            assert (len(sizes) == 1) == stays, (way, sizes)
            assert all(size % TP == 0 for size in sizes), (way, sizes)
            assert [each.is_released for each in group] == [p >= sizes[-1] for p in range(ep_size)], way
            assert [e.passes for e in group[::TP]] == [e.passes for e in group[1::TP]], way


@in_runs
def test_what_leavers_and_queues_have_moves_between_replicas(run):
    found = generated(*run)
    for way in ("as early as can be", "reference path", "queues even out"):
        moved = [each.moved_sequences for each in found[way][1]]
        assert sum(moved) > 0 and not any(moved[1::TP]), (way, moved)
    # both ranks of the replica that stayed got the keys and values of their own heads, and experts
    bytes_by_rank = [each.moved_bytes for each in found["as early as can be"][1][:TP]]
    assert all(bytes_by_rank), bytes_by_rank
