"""Memory of a lease, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexfloor.elastic.placement import Placement
from flexfloor.overlap.floor import LeaseMemory, fits, most_guests
from flexfloor.overlap.placement import grown, lease_placement

MEMORY = LeaseMemory(budget=1000, weights=200, training=300, guest=50, row=2, rows=100)


def test_what_is_left_beside_training_is_for_guests():
    # 200 + 300 + 100 rows x 2 = 700 before any guest; 6 x 50 fill the rest
    assert MEMORY.needed(0) == 700
    assert MEMORY.needed(6) == 1000
    assert MEMORY.hostable_guests() == 6
    assert replace(MEMORY, budget=999).hostable_guests() == 5
    assert replace(MEMORY, budget=699).hostable_guests() < 0


@pytest.mark.parametrize(
    ("hosts", "ep_size", "most"),
    [
        # 2 experts a rank on 4 ranks; positions 2 and 3 are the lease
        ((2, 3, 2, 3, 2, 2, 3, 3), 4, 2),
        ((3, 3, 3, 3, 2, 2, 3, 3), 4, 4),
        ((3, 3, 3, 3, 3, 3, 3, 3), 4, 6),
        ((0, 1), 2, 0),
    ],
)
def test_guests_are_what_a_rank_hosts_and_does_not_own(hosts, ep_size, most):
    assert most_guests(Placement(hosts_of=tuple((host,) for host in hosts)), ep_size) == most


def test_one_rank_with_six_guests_fits_and_not_with_a_byte_less():
    alone = lease_placement(8, 4, 3)
    assert fits(MEMORY, alone, 4)
    assert not fits(replace(MEMORY, budget=999), alone, 4)


def test_ranks_that_cannot_train_what_they_own_form_no_lease_even_without_guests():
    home = Placement(hosts_of=((0,), (1,)))
    assert fits(replace(MEMORY, budget=700), home, 2)
    assert not fits(replace(MEMORY, budget=699), home, 2)


@given(st.integers(2, 6), st.integers(1, 4), st.data())
def test_a_lease_that_fits_still_fits_when_it_grows(ep_size, each, data):
    rung = data.draw(st.integers(1, ep_size - 1))
    lower = data.draw(st.integers(1, rung))
    placement = lease_placement(ep_size * each, ep_size, rung)
    memory = replace(MEMORY, budget=data.draw(st.integers(0, 3000)))
    if fits(memory, placement, ep_size):
        assert fits(memory, grown(placement, ep_size, lower), ep_size)
        assert memory.needed(most_guests(placement, ep_size)) <= memory.budget


def test_memory_goes_before_balance():
    # The experts of position 0 are so light that both would go to position 2, which has memory for one.
    load = [1, 1, 9, 9, 0, 0]
    assert lease_placement(6, 3, 1, load).hosts_of[:2] == ((2,), (2,))
    assert sorted(lease_placement(6, 3, 1, load, guests=1).hosts_of[:2]) == [(1,), (2,)]
