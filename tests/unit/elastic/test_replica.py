"""How the rows of a replica are shared out before routed experts."""

from __future__ import annotations

import pytest
import torch

from flexfloor.elastic.replica import Replica, agreed, shares


def test_shares_differ_by_one_row_at_most_and_the_first_ranks_have_more() -> None:
    assert shares(7, 2) == [4, 3]
    assert shares(6, 4) == [2, 2, 1, 1]
    assert shares(1, 4) == [1, 0, 0, 0]
    assert shares(0, 2) == [0, 0]


def test_a_rank_takes_the_rows_behind_those_of_the_ranks_before_it() -> None:
    replica, taken = Replica(), []
    replica.size = 3
    for replica.index in range(3):
        taken += list(range(8))[replica.share(8)]
        rows = torch.arange(16.0).view(8, 2)[replica.share(8)]
        spread = replica.spread(rows, 8)
        assert spread[replica.share(8)].equal(rows) and spread.sum() == rows.sum()
    assert taken == list(range(8))


def test_a_rank_alone_takes_all_and_changes_nothing() -> None:
    replica, rows = Replica(), torch.ones(3, 2)
    assert replica.is_first and replica.share(3) == slice(0, 3)
    for same in (replica.spread(rows, 3), replica.summed(rows), replica.joined(rows, 1)):
        assert same is rows


def test_a_rank_that_has_gone_another_way_than_its_replica_is_told() -> None:
    assert agreed([[3, 1], [3, 1], [4, 0], [4, 0]], 2) == [[3, 1], [4, 0]]
    assert agreed([[3], [4]], 1) == [[3], [4]]
    with pytest.raises(AssertionError, match=r"ranks at \[3\] have gone other ways"):
        agreed([[3, 1], [3, 1], [4, 0], [4, 1]], 2)
