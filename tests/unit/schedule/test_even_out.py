"""Ranks that even out what is left before they part."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexfloor.elastic.floor import need_of_parting
from flexfloor.schedule.even_out import even_out, evened, evened_out
from flexfloor.schedule.shrink import Standing


def standings(counts):
    return [Standing(unfinished=count, kv_tokens=count, finished=0) for count in counts]


@given(st.lists(st.integers(0, 30), min_size=1, max_size=9))
def test_numbers_are_even_after_the_fewest_moves(counts):
    left = Counter(dict(enumerate(counts)))
    moves = even_out(standings(counts))
    for each in moves:
        left[each.source] -= each.count
        left[each.target] += each.count
    assert [left[rank] for rank in range(len(counts))] == evened(standings(counts))
    assert max(left.values()) - min(left.values()) <= 1 and sum(left.values()) == sum(counts)
    assert not {each.source for each in moves} & {each.target for each in moves}
    assert all(each.count > 0 for each in moves) and len(moves) < max(2, len(counts))
    # Of an even share, rounded up, nobody can keep more, and so many can keep that much.
    level, more = divmod(sum(counts), len(counts))
    over = sorted((count - level for count in counts if count > level), reverse=True)
    assert sum(each.count for each in moves) == sum(over) - min(more, len(over))


def test_by_hand():
    moves = even_out(standings([2, 3, 0, 1, 0, 2, 2, 3]))
    assert [(each.source, each.target, each.count) for each in moves] == [(1, 2, 1), (7, 4, 1)]
    assert evened(standings([5, 0, 0])) == [2, 2, 1]
    assert even_out(standings([1, 1, 0, 0])) == [] == even_out(standings([0, 0]))


def test_what_is_given_is_like_the_rest_of_the_givers():
    alive = np.array([[4.0, 2.0, 1.0], [0.0, 0.0, 0.0]])
    assert evened_out(alive, standings([4, 0])).tolist() == [[2.0, 1.0, 0.5], [2.0, 1.0, 0.5]]
    assert alive[0, 0] == 4.0


@pytest.mark.parametrize(
    ("counts", "size", "sequences", "moved"),
    [([4, 1, 1], 3, 2, 1), ([4, 1, 1], 2, 3, 1), ([2, 2, 2], 3, 2, 0), ([1, 0, 0], 3, 1, 0)],
)
def test_memory_counts_the_evened_numbers_and_what_moves(counts, size, sequences, moved):
    need = need_of_parting(standings(counts), size, longest=10, kv_tokens_per_rank=1000)
    assert (need.sequences, need.kv_tokens, need.moved_tokens) == (sequences, 10 * sequences, 10 * moved)
    assert need.rows == sum(counts) + 10
    assert need_of_parting(standings(counts), size, longest=10, kv_tokens_per_rank=15).kv_tokens <= 15
