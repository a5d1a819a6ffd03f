"""The groups of the ladder are there, on the right ranks, and each carries a collective."""

import pytest
import torch
import torch.distributed as dist

from flexfloor import parallel
from flexfloor.launch import run_ranks


def sums_and_ladder(ep_size, rungs, alone, suffixes, replica_size):
    """By kind of group and rung: the sum of the members' ranks + 1, as each member computes it."""
    from flexfloor.elastic.ladder import make_ladder

    parallel.initialize(ep_size=ep_size, tp_size=replica_size, seed=1, timeout_seconds=60)
    group, ways = parallel.groups().ep, {"alone": alone, "suffixes": suffixes}
    ladder = make_ladder(group, rungs, timeout_seconds=60, replica_size=replica_size, **ways)
    assert ladder.replica_size == replica_size
    groups = {("prefix", rung): each for rung, each in ladder.groups.items()}
    groups |= {("suffix", rung): each for rung, each in ladder.suffixes.items()}
    groups |= {("alone", 1): ladder.alone} if alone else {}
    mine = {key: each for key, each in groups.items() if each is not dist.GroupMember.NON_GROUP_MEMBER}
    sums = {}
    for key in sorted(mine):
        dist.all_reduce(total := torch.tensor([dist.get_rank() + 1]), group=mine[key])
        sums[key] = total.item()
    num_made = len({id(each) for each in mine.values()})
    return sums, ladder.position, ladder.size, ladder.rungs, num_made


def expected(ranks, position, rungs, alone, suffixes):
    """The sums that a member of the expert group `ranks` gets, counted by hand of who is in which group."""
    sums = {("prefix", len(ranks)): sum(ranks) + len(ranks)}
    for rung in rungs:
        if position < rung:
            sums["prefix", rung] = sum(ranks[:rung]) + rung
        elif suffixes:
            sums["suffix", rung] = sum(ranks[rung:]) + len(ranks) - rung
    return sums | ({("alone", 1): ranks[position] + 1} if alone else {})


@pytest.mark.parametrize(
    ("world_size", "ep_size", "rungs", "alone", "suffixes"),
    [
        (4, 4, [], True, True),
        (4, 2, [], True, True),
        (4, 4, [3, 1], False, True),
        (3, 3, [], False, False),
    ],
)
def test_every_group_of_the_ladder_sums_over_its_members(world_size, ep_size, rungs, alone, suffixes):
    found = run_ranks(
        sums_and_ladder,
        world_size,
        ep_size,
        rungs,
        alone,
        suffixes,
        1,
        threads_per_rank=1,
        total_timeout_seconds=120,
    )
    for rank, (sums, position, size, told_rungs, num_made) in enumerate(found):
        first = rank - rank % ep_size
        ranks, made = list(range(first, first + ep_size)), sorted(rungs or range(1, ep_size))
        assert (position, size, told_rungs) == (rank - first, ep_size, made)
        assert sums == expected(ranks, position, made, alone, suffixes), rank
        members = {tuple(ranks[:rung]) for rung in made if position < rung} | {tuple(ranks)}
        members |= {tuple(ranks[rung:]) for rung in made if suffixes and position >= rung}
        members |= {(rank,)} if alone else set()
        assert num_made == len(members), "one communicator for the same ranks"


def test_a_ladder_of_replicas_has_whole_replicas_on_its_rungs():
    # two replicas of two ranks, 0 and 1 and 2 and 3
    found = run_ranks(
        sums_and_ladder, 4, 4, [], False, True, 2, threads_per_rank=1, total_timeout_seconds=120
    )
    for rank, (sums, position, size, rungs, num_made) in enumerate(found):
        left = {("prefix", 1): 1 + 2} if rank < 2 else {("suffix", 1): 3 + 4}
        assert sums == {("prefix", 2): 1 + 2 + 3 + 4, **left}
        assert (position, size, rungs, num_made) == (rank // 2, 2, [1], 2)
