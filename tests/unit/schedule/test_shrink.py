"""The decision to shrink and the dealing of what leavers had, over thousands of standings."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexfloor.schedule.shrink import Standing, detaches, hand_over, next_size, taken_over


def greedy(told, rungs, *, sequences_per_rank: int, kv_tokens_per_rank: int) -> int:
    limits = {"sequences_per_rank": sequences_per_rank, "kv_tokens_per_rank": kv_tokens_per_rank}
    return next_size(told, rungs, policy="greedy", **limits)


def standings(*unfinished: int, kv_tokens: int = 0) -> list[Standing]:
    return [Standing(unfinished=count, kv_tokens=kv_tokens, finished=0) for count in unfinished]


@pytest.mark.parametrize(
    ("unfinished", "per_rank", "rungs", "expected"),
    [
        ((4, 4, 4, 4), 4, [1, 2, 3], 4),
        ((4, 4, 4, 0), 4, [1, 2, 3], 3),
        ((1, 0, 0, 5), 4, [1, 2, 3], 2),
        ((1, 0, 0, 3), 4, [1, 2, 3], 1),
        ((1, 0, 0, 3), 4, [2], 2),
        ((1, 0, 0, 5), 4, [1], 4),
        ((1, 0), 4, [1, 2, 3], 1),
    ],
)
def test_the_smallest_rung_that_holds_all_is_taken(unfinished, per_rank, rungs, expected) -> None:
    found = greedy(standings(*unfinished), rungs, sequences_per_rank=per_rank, kv_tokens_per_rank=1)
    assert found == expected


@pytest.mark.parametrize(("room", "expected"), [(99, 4), (100, 3), (149, 3), (150, 2), (300, 1)])
def test_a_rung_whose_caches_do_not_hold_all_is_not_taken(room: int, expected: int) -> None:
    told = standings(1, 1, 1, kv_tokens=100) + standings(0)
    found = greedy(told, [1, 2, 3], sequences_per_rank=9, kv_tokens_per_rank=room)
    assert found == expected


counts = st.lists(st.integers(0, 40), min_size=2, max_size=9)


@given(counts, st.data())
def test_everything_of_the_leavers_goes_to_stayers_once_and_evenly(unfinished, data) -> None:
    rung = data.draw(st.integers(1, len(unfinished) - 1))
    handovers = hand_over(standings(*unfinished), rung)
    given_away = Counter()
    held = list(unfinished[:rung])
    for each in handovers:
        assert each.source >= rung > each.target and each.count > 0
        given_away[each.source] += each.count
        held[each.target] += each.count
    for source in range(rung, len(unfinished)):
        assert given_away[source] == unfinished[source]
    grown = [after for after, before in zip(held, unfinished[:rung], strict=True) if after > before]
    assert not grown or max(grown) <= min(held) + 1


@given(counts, st.integers(1, 50), st.integers(1, 10**4), st.integers(1, 300), st.data())
def test_a_rung_that_is_taken_holds_all_and_no_smaller_one_does(
    unfinished, per_rank, room, tokens, data
) -> None:
    told = standings(*unfinished, kv_tokens=tokens)
    rungs = data.draw(st.lists(st.integers(1, len(told)), unique=True))
    found = greedy(told, rungs, sequences_per_rank=per_rank, kv_tokens_per_rank=room)

    def holds(rung: int) -> bool:
        return sum(unfinished) <= rung * per_rank and tokens * len(told) <= rung * room

    fitting = [rung for rung in rungs if rung < len(told) and holds(rung)]
    assert found == min(fitting, default=len(told))


@pytest.mark.parametrize(
    ("unfinished", "rungs", "expected"),
    [((2, 0, 1, 0), [1, 2, 3], 3), ((2, 0, 0, 0), [1, 2, 3], 1), ((2, 0, 0, 0), [2, 3], 2), ((0, 1), [1], 2)],
)
def test_idle_lets_only_ranks_go_that_have_nothing_left(unfinished, rungs, expected) -> None:
    told, limits = standings(*unfinished), {"sequences_per_rank": 99, "kv_tokens_per_rank": 99}
    assert next_size(told, rungs, policy="idle", **limits) == expected
    assert next_size(told, rungs, policy="never", **limits) == len(unfinished)


@pytest.mark.parametrize(
    ("unfinished", "hostable", "expected"),
    [
        ((4, 4), 8, True),
        ((4, 4), 9, True),
        ((4, 4), 7, False),
        ((0, 3), 8, True),
        ((0, 0), 8, False),
        ((4,), 8, False),
    ],
)
def test_ranks_part_when_each_has_memory_for_all_experts(unfinished, hostable: int, expected: bool) -> None:
    assert detaches(standings(*unfinished), hostable=hostable, num_experts=8) is expected


@given(st.lists(st.integers(0, 9), min_size=1, max_size=6), st.lists(st.integers(0, 30), max_size=4))
def test_each_goes_to_whoever_has_fewest_one_after_the_other(stayers, leavers):
    standings = [Standing(unfinished=each, kv_tokens=0, finished=0) for each in (*stayers, *leavers)]
    held, expected = list(stayers), []
    for source, count in enumerate(leavers, start=len(stayers)):
        given = [0] * len(stayers)
        for _ in range(count):
            target = held.index(min(held))
            held[target] += 1
            given[target] += 1
        expected += [(source, target, count) for target, count in enumerate(given) if count]
    found = hand_over(standings, len(stayers))
    assert [(each.source, each.target, each.count) for each in found] == expected
    sums = [sum(count for _, to, count in expected if to == target) for target in range(len(stayers))]
    assert taken_over(standings, len(stayers)) == sums
