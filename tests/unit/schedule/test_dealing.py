"""Queues that are split and queues that are merged."""

from hypothesis import given
from hypothesis import strategies as st

from flexfloor.schedule.dealing import dealt, merged


def test_hands_are_dealt_forth_and_back():
    assert dealt(range(8), [4, 4]) == [[0, 3, 4, 7], [1, 2, 5, 6]]
    assert dealt(range(6), [1, 3, 2]) == [[0], [1, 4, 5], [2, 3]]
    assert dealt([], [0, 0]) == [[], []]


def test_who_stood_in_the_middle_stands_in_the_middle():
    assert merged([[1, 2], ["a", "b", "c", "d"]]) == ["a", 1, "b", "c", 2, "d"]
    assert merged([[], [1, 2], []]) == [1, 2]
    assert merged([[1], [2]]) == [1, 2]
    assert merged([]) == []


@given(st.lists(st.integers(0, 9), min_size=1, max_size=6))
def test_nothing_is_lost_and_the_order_kept(counts):
    items = list(range(sum(counts)))
    hands = dealt(items, counts)
    assert [len(hand) for hand in hands] == counts
    assert all(hand == sorted(hand) for hand in hands)
    assert sorted(item for hand in hands for item in hand) == items
    again = merged(hands)
    assert sorted(again) == items
    assert all([item for item in again if item in hand] == hand for hand in hands)
