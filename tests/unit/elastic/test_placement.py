"""Where experts go when a group shrinks, over thousands of groups, rungs and loads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexfloor.elastic.placement import ExpertMove, Placement, expert_moves, home_placement, shrunk


def test_the_home_placement_is_megatrons() -> None:
    assert home_placement(8, 4).host_of == (0, 0, 1, 1, 2, 2, 3, 3)
    assert home_placement(8, 4).hosted_by(2) == [4, 5]


def test_eight_experts_go_from_four_ranks_to_three_and_one() -> None:
    home = home_placement(8, 4)
    three = shrunk(home, 3)
    assert three.host_of == (0, 0, 1, 1, 2, 2, 0, 1)
    assert expert_moves(home, three) == [
        ExpertMove(expert=6, source=3, target=0),
        ExpertMove(expert=7, source=3, target=1),
    ]
    one = shrunk(three, 1)
    assert set(one.host_of) == {0}
    assert [move.expert for move in expert_moves(three, one)] == [2, 3, 4, 5, 7]


def test_the_heaviest_expert_goes_to_the_lightest_host() -> None:
    # hosts 0 and 1 carry 5 and 1; experts 4 and 5 of the leaver weigh 2 and 6
    placement = shrunk(home_placement(6, 3), 2, load=[4, 1, 1, 0, 2, 6])
    assert placement.host_of == (0, 0, 1, 1, 0, 1)


def test_an_expert_goes_only_where_there_is_memory_for_it() -> None:
    home, load = home_placement(6, 3), [9, 9, 0, 0, 2, 1]
    assert shrunk(home, 2, load).host_of == (0, 0, 1, 1, 1, 1)
    assert shrunk(home, 2, load, hostable=3).host_of == (0, 0, 1, 1, 1, 0)


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
        assert all(0 <= host < rung for host in after.host_of)
        moved = {move.expert for move in expert_moves(placement, after)}
        assert moved == {expert for expert, host in enumerate(placement.host_of) if host >= rung}
        placement = after


@given(groups())
def test_alike_experts_are_shared_out_evenly(drawn) -> None:
    home, rungs, _ = drawn
    counts = [len(shrunk(home, rungs[0]).hosted_by(position)) for position in range(rungs[0])]
    assert sum(counts) == len(home.host_of) and max(counts) - min(counts) <= 1


@pytest.mark.parametrize("load", [None, [1.0] * 8])
def test_no_load_means_all_alike(load) -> None:
    assert shrunk(home_placement(8, 4), 3, load) == Placement(host_of=(0, 0, 1, 1, 2, 2, 0, 1))
