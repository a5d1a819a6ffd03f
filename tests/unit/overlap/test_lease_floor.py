"""Whether released ranks have the memory to train."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from flexfloor.overlap.floor import LeaseMemory, fits
from flexfloor.overlap.placement import lease_placement

MEMORY = LeaseMemory(budget=0, resident=1000, guest=50, dense_row=3, routed_row=2)


def test_what_a_rank_needs_is_the_sum_of_its_parts():
    # 1000 + 4 guests of 50 + 10 rows of 3 and, for an uneven load, twice 2
    assert MEMORY.needed(4, 10) == 1000 + 200 + 70


def test_the_rank_with_most_guests_decides():
    placement = lease_placement(8, 4, 2, [1] * 8)
    # Positions 2 and 3 get two of the four experts of 0 and 1 each.
    needed = MEMORY.needed(2, 10)
    assert fits(replace(MEMORY, budget=needed), placement, ep_size=4, rows=10)
    assert not fits(replace(MEMORY, budget=needed - 1), placement, ep_size=4, rows=10)


@given(st.integers(2, 6), st.integers(1, 3), st.integers(0, 3000), st.integers(0, 500))
def test_what_fits_fits_more_ranks_and_a_larger_budget(ep_size, each, budget, more):
    memory = replace(MEMORY, budget=budget)
    found = [
        fits(memory, lease_placement(ep_size * each, ep_size, rung), ep_size=ep_size, rows=9)
        for rung in range(ep_size - 1, 0, -1)
    ]
    # More released ranks never fit less.
    assert found == sorted(found)
    larger = replace(memory, budget=budget + more)
    for rung, did in zip(range(ep_size - 1, 0, -1), found, strict=True):
        placement = lease_placement(ep_size * each, ep_size, rung)
        assert not did or fits(larger, placement, ep_size=ep_size, rows=9)
