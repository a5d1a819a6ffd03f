"""Where experts go when a group shrinks, over thousands of groups, rungs and loads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexfloor.elastic.placement import ExpertMove, Placement, expert_moves, home_placement, shrunk, spread


def alone(*hosts: int) -> Placement:
    """The placement with one host of each expert."""
    return Placement(hosts_of=tuple((host,) for host in hosts))


def test_the_home_placement_is_megatrons() -> None:
    assert home_placement(8, 4) == alone(0, 0, 1, 1, 2, 2, 3, 3)
    assert home_placement(8, 4).hosted_by(2) == [4, 5]


def test_eight_experts_go_from_four_ranks_to_three_and_one() -> None:
    home = home_placement(8, 4)
    three = shrunk(home, 3)
    assert three == alone(0, 0, 1, 1, 2, 2, 0, 1)
    assert expert_moves(home, three) == [
        ExpertMove(expert=6, source=3, target=0),
        ExpertMove(expert=7, source=3, target=1),
    ]
    one = shrunk(three, 1)
    assert one == alone(*[0] * 8)
    assert [move.expert for move in expert_moves(three, one)] == [2, 3, 4, 5, 7]


def test_the_heaviest_expert_goes_to_the_lightest_host() -> None:
    # hosts 0 and 1 carry 5 and 1; experts 4 and 5 of the leaver weigh 2 and 6
    placement = shrunk(home_placement(6, 3), 2, load=[4, 1, 1, 0, 2, 6])
    assert placement == alone(0, 0, 1, 1, 0, 1)


def test_an_expert_goes_only_where_there_is_memory_for_it() -> None:
    home, load = home_placement(6, 3), [9, 9, 0, 0, 2, 1]
    assert shrunk(home, 2, load) == alone(0, 0, 1, 1, 1, 1)
    assert shrunk(home, 2, load, hostable=3) == alone(0, 0, 1, 1, 1, 0)


@st.composite
def groups(draw):
    ep_size = draw(st.integers(2, 8))
    num_experts = ep_size * draw(st.integers(1, 6))
    load = draw(st.lists(st.floats(0, 100), min_size=num_experts, max_size=num_experts))
    rungs = sorted(draw(st.sets(st.integers(1, ep_size - 1), min_size=1)), reverse=True)
    return home_placement(num_experts, ep_size), rungs, load


@given(groups())
def test_every_rung_hosts_every_expert_and_copies_those_of_leavers_only(drawn) -> None:
    placement, rungs, load = drawn
    for rung in rungs:
        after = shrunk(placement, rung, load)
        assert all(0 <= host < rung for [host] in after.hosts_of)
        moved = {move.expert for move in expert_moves(placement, after)}
        assert moved == {expert for expert, [host] in enumerate(placement.hosts_of) if host >= rung}
        placement = after


@given(groups())
def test_alike_experts_are_shared_out_evenly(drawn) -> None:
    home, rungs, _ = drawn
    counts = [len(shrunk(home, rungs[0]).hosted_by(position)) for position in range(rungs[0])]
    assert sum(counts) == len(home.hosts_of) and max(counts) - min(counts) <= 1


@pytest.mark.parametrize("load", [None, [1.0] * 8])
def test_no_load_means_all_alike(load) -> None:
    assert shrunk(home_placement(8, 4), 3, load) == alone(0, 0, 1, 1, 2, 2, 0, 1)


def test_a_row_goes_to_its_own_rank_else_to_the_next_host_below() -> None:
    placement = Placement(hosts_of=((0, 1, 2, 3), (1,), (0, 3), (1, 2)))
    assert placement.hosted_by(3) == [0, 2]
    assert [placement.nearest(position) for position in range(4)] == [
        (0, 1, 0, 2),
        (1, 1, 0, 1),
        (2, 1, 0, 2),
        (3, 1, 3, 2),
    ]


def test_a_shrink_leaves_an_expert_with_those_of_its_hosts_that_stay() -> None:
    placement = Placement(hosts_of=((0, 2), (0,), (1, 3), (3,)))
    # half of expert 0 and all of expert 1 weigh on position 0, expert 2 alone on position 1
    after = shrunk(placement, 2, load=[1, 1, 1, 1])
    assert after == alone(0, 0, 1, 1)
    assert expert_moves(placement, after) == [ExpertMove(expert=3, source=3, target=1)]


def test_two_of_three_ranks_that_go_on_alone_copy_what_they_lack() -> None:
    home = home_placement(3, 3)
    after = spread(home, [0, 2])
    assert after.hosts_of == ((0, 2), (0, 1, 2), (0, 2))
    assert expert_moves(home, after) == [
        ExpertMove(expert=0, source=0, target=2),
        ExpertMove(expert=1, source=1, target=0),
        ExpertMove(expert=1, source=1, target=2),
        ExpertMove(expert=2, source=2, target=0),
    ]


@given(groups(), st.data())
def test_after_a_detachment_every_row_of_those_that_go_on_stays_at_home(drawn, data) -> None:
    placement, rungs, load = drawn
    placement = shrunk(placement, rungs[0], load)
    going_on = data.draw(st.lists(st.integers(0, rungs[0] - 1), min_size=1, unique=True).map(sorted))
    after = spread(placement, going_on)
    for position in going_on:
        assert set(after.nearest(position)) == {position}
    moves = expert_moves(placement, after)
    assert all(move.source in placement.hosts_of[move.expert] for move in moves)
    missing = [
        (expert, to) for to in going_on for expert, [host] in enumerate(placement.hosts_of) if host != to
    ]
    assert sorted((move.expert, move.target) for move in moves) == sorted(missing)
