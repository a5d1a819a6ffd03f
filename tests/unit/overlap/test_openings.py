"""Which leases may be opened, and how many replicas must have left: what the shrink decision counts on."""

import pytest

from flexfloor.overlap.floor import LeaseMemory
from flexfloor.overlap.openings import Openings


def openings(guests, rungs, *, replica_size=1):
    """8 experts on 4 ranks, each with the memory for so many guests of a byte."""
    memory = LeaseMemory(budget=guests, weights=0, training=0, guest=1, row=0, rows=0)
    num_replicas = 4 // replica_size
    sizes = {"num_replicas": num_replicas, "replica_size": replica_size}
    return Openings(num_experts=8, rungs=rungs, memory=memory, **sizes)


@pytest.mark.parametrize(
    ("guests", "rungs", "fewest"), [(2, (3, 2, 1), 2), (6, (3, 1), 1), (1, (3, 2, 1), 3), (1, (3, 2), None)]
)
def test_the_highest_rung_whose_lease_fits_tells(guests, rungs, fewest):
    # a lease of 1, 2 and 3 ranks brings 6, 2 and 1 guests to each
    assert openings(guests, rungs).fewest == fewest


@pytest.mark.parametrize(("guests", "fewest"), [(2, 1), (1, None)])
def test_of_replicas_all_ranks_are_in_a_lease(guests, fewest):
    # one of two replicas has two ranks, each with two of the other's four experts
    two = openings(guests, (1,), replica_size=2)
    assert two.fewest == fewest
    assert two.placement(1).hosts_of[4:] == ((2,), (2,), (3,), (3,))
    assert sorted(host for (host,) in two.placement(1).hosts_of[:4]) == [2, 2, 3, 3]


def test_what_is_short_is_said_in_bytes():
    assert openings(1, (1,), replica_size=2).shortage(1) == "2 released ranks need 2 bytes each and have 1"
    assert openings(2, (1,), replica_size=2).shortage(1) == ""


def test_a_rank_takes_no_more_guests_than_there_are_experts():
    assert openings(3, (1,)).hostable_guests == 3
    assert openings(100, (1,)).hostable_guests == 8
