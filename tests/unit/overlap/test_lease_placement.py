"""Who hosts which expert in a lease."""

from hypothesis import given
from hypothesis import strategies as st

from flexfloor.elastic.placement import home_placement
from flexfloor.overlap.placement import grown, lease_placement


def test_the_lease_keeps_its_own_experts_and_shares_out_the_others():
    placement = lease_placement(8, 4, 2)
    # Position 2 owns 4 and 5, position 3 owns 6 and 7; each gets two of 0 to 3.
    assert placement.hosts_of[4:] == ((2,), (2,), (3,), (3,))
    assert sorted(host for [host] in placement.hosts_of[:4]) == [2, 2, 3, 3]


def test_the_heaviest_guest_goes_to_the_host_with_less():
    # Position 2 holds 10, position 3 holds 1: the guests of weight 5 and 3 both go to position 3.
    placement = lease_placement(3 * 2, 3, 1, [5, 3, 9, 1, 0.5, 0.5])
    assert placement.hosts_of[:2] == ((2,), (2,))


def test_a_lease_that_grows_sends_guests_home_and_moves_no_other():
    before = lease_placement(8, 4, 3)
    after = grown(before, 4, 1)
    assert before.hosts_of == ((3,),) * 8
    assert after.hosts_of == ((3,), (3,), (1,), (1,), (2,), (2,), (3,), (3,))


@given(st.data())
def test_every_expert_has_one_host_in_the_lease_and_owners_keep_theirs(data):
    ep_size = data.draw(st.integers(2, 8))
    num_experts = ep_size * data.draw(st.integers(1, 4))
    load = data.draw(st.lists(st.integers(0, 9), min_size=num_experts, max_size=num_experts))
    rungs = sorted(data.draw(st.sets(st.integers(1, ep_size - 1), min_size=1)), reverse=True)
    home = home_placement(num_experts, ep_size)
    placement = lease_placement(num_experts, ep_size, rungs[0], load)
    for rung in rungs:
        placement = grown(placement, ep_size, rung) if rung != rungs[0] else placement
        for own, hosts in zip(home.hosts_of, placement.hosts_of, strict=True):
            assert len(hosts) == 1 and rung <= hosts[0] < ep_size
            assert hosts == own or own[0] < rung
