"""A schedule's guidance on real ranks: whatever it says, the tokens are those of the fixed group."""

import forced_lengths
import pytest
import torch.distributed as dist
from guidance_ranks import Costs, known, learned

from flexfloor import parallel

GUIDED = {"policy": "guided", "interval": 1}
MAY_PART = GUIDED | {"detach": True}


def of_its_own(requests):
    """Guidance whose costs no other rank shares: dear shrinks on all but the first of a group."""
    is_first = dist.get_rank(parallel.groups().ep) == 0
    return learned(costs=Costs(a_shrink=0.01 if is_first else 1e6))(requests)


WAYS = {
    "ranks that reckon differently": {"guidance": of_its_own},
    "known": {"guidance": known(1.0)},
    "learned": {"guidance": learned()},
    "fastest": {"guidance": learned(objective="throughput")},
    "whole step": {"guidance": learned(objective="step_time"), "max_live": 3},
    "a hundred times too long": {"guidance": known(100.0), "max_live": 3},
    "all over at once": {"guidance": known(0.01), "max_live": 3},
    "all wait on one rank": {"guidance": learned(), "deal": "last rank", "max_live": 2},
    "queues even out": {
        "guidance": learned(),
        "deal": "last rank",
        "max_live": 4,
        "elastic": {"interval": 2},
    },
    "yielding": {"guidance": learned(), "deal": "backwards", "kv_budget_bytes": 32_000},
    "shrinks cost too much": {"guidance": learned(costs=Costs(a_shrink=1e6))},
    "nothing measured yet": {"guidance": learned(costs=Costs(a_shrink=1e6), explores=True)},
    "part": {"guidance": learned(objective="throughput"), "elastic": MAY_PART, "max_live": 3},
    "part on the reference path": {
        "guidance": learned(objective="throughput"),
        "elastic": MAY_PART,
        "path": "reference",
    },
    "stay though they may part": {
        "guidance": learned(objective="throughput", costs=Costs(an_alone=10.0)),
        "elastic": MAY_PART,
    },
    "reference path": {"guidance": learned(), "path": "reference", "max_live": 3},
}


def generate_all_ways(ep_size, name):
    return forced_lengths.generate_ways(WAYS, ep_size, name, elastic=GUIDED)


generated = forced_lengths.started(generate_all_ways)
RUNS = [
    ("mixtral", 4, 2),
    ("deepseek_v3", 3, 3),
    pytest.param(("mixtral", 2, 2), marks=pytest.mark.slow),
    pytest.param(("mixtral", 4, 4), marks=pytest.mark.slow),
]


@pytest.mark.parametrize("run", RUNS, ids=str)
def test_float64_tokens_are_exactly_those_of_the_fixed_group(run):
    forced_lengths.require_tokens_of_the_fixed_group(generated(*run))


@pytest.mark.parametrize("run", RUNS, ids=str)
def test_ranks_leave_where_it_pays_and_stay_where_it_does_not(run):
    for way, (_, stats) in generated(*run).items():
        shrinks = max(each.shrinks for each in stats)
        never = way in ("fixed", "shrinks cost too much", "queues even out")
        assert (shrinks == 0) == never, (way, shrinks)


@pytest.mark.parametrize("run", RUNS, ids=str)
def test_ranks_part_where_passes_of_their_own_are_cheap(run):
    for way, (_, stats) in generated(*run).items():
        assert any(each.is_detached for each in stats) == way.startswith("part"), way
        timed = sum(sample.load.ranks > 1 for each in stats for sample in each.alone_samples)
        assert (timed > 0) == way.startswith("part"), way


@pytest.mark.parametrize("run", RUNS, ids=str)
def test_ranks_without_work_take_what_waits_on_others(run):
    _, stats = generated(*run)["queues even out"]
    _, world_size, ep_size = run
    assert [each.moved_sequences > 0 for each in stats] == [
        position // ep_size == world_size // ep_size - 1 and position < world_size - 1
        for position in range(world_size)
    ]
    decoded = [each.decoded_tokens for each in stats]
    assert decoded[-1] < sum(forced_lengths.LENGTHS)
    assert sum(decoded) == sum(forced_lengths.LENGTHS)
