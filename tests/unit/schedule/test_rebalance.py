"""Who takes queued responses from whom."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexfloor.schedule.rebalance import rebalance
from flexfloor.schedule.shrink import Handover, Standing

ROOM = {"sequences": 8, "kv_tokens": 1000}


def standing(live: int, waiting: int = 0, kv_tokens: int = 0, waiting_tokens: int | None = None) -> Standing:
    tokens = 10 * waiting if waiting_tokens is None else waiting_tokens
    return Standing(
        unfinished=live + waiting, kv_tokens=kv_tokens, finished=0, waiting=waiting, waiting_tokens=tokens
    )


@pytest.mark.parametrize(
    ("standings", "expected"),
    [
        ([standing(8, 6), standing(2)], [(0, 1, 6)]),
        ([standing(8, 7), standing(2)], [(0, 1, 6)]),
        ([standing(8, 6), standing(2, 1)], []),  # who has work waiting needs none
        ([standing(8), standing(2)], []),
        ([standing(8, 2), standing(8, 5), standing(5)], [(1, 2, 3)]),
        ([standing(8, 6), standing(2, kv_tokens=940)], [(0, 1, 3)]),  # 60 tokens free, 2 x 10 each
        ([standing(8, 3), standing(7), standing(7)], [(0, 1, 1), (0, 2, 1)]),
    ],
)
def test_by_hand(standings, expected):
    found = rebalance(standings, **ROOM)
    assert found == [Handover(source=s, target=t, count=c) for s, t, c in expected]


ranks = st.builds(standing, st.integers(0, 8), st.integers(0, 12), st.integers(0, 1200), st.integers(0, 600))


@given(st.lists(ranks, min_size=1, max_size=6))
def test_no_more_is_given_than_waits_and_nobody_gets_more_than_fits(standings):
    found = rebalance(standings, **ROOM)
    assert found == rebalance(standings, **ROOM)
    for position, each in enumerate(standings):
        sent = sum(h.count for h in found if h.source == position)
        got = sum(h.count for h in found if h.target == position)
        assert sent <= each.waiting
        assert not got or (each.waiting == 0 and each.unfinished + got <= 8)
        assert not (sent and got)
    left = [s.waiting - sum(h.count for h in found if h.source == p) for p, s in enumerate(standings)]
    assert max(left) <= max(s.waiting for s in standings)
    assert all(h.count > 0 for h in found)
