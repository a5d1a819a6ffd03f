"""The arithmetic of the floor, over thousands of budgets and standings."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexfloor.elastic.floor import Need, RankMemory, fits, fitting_rungs, need_of_rung
from flexfloor.elastic.placement import home_placement, shrunk
from flexfloor.schedule.shrink import Standing

MEMORY = RankMemory(budget=1000, dense=100, expert=50, training=200, kv_token=2, row=3, logits=7)


def standing(unfinished: int, waiting_tokens: int = 0) -> Standing:
    return Standing(unfinished=unfinished, kv_tokens=0, finished=0, waiting_tokens=waiting_tokens)


def test_what_a_rank_needs_is_the_sum_of_its_parts() -> None:
    # 100 + 200, 20 tokens of 2, 5 rows of 3 and 4 sequences of 7, six experts of 50
    need = Need(sequences=4, kv_tokens=20, rows=5)
    assert MEMORY.needed(6, need) == 100 + 200 + 40 + 15 + 28 + 300
    # 1000 - 383 leaves room for 12 experts
    assert MEMORY.hostable(need) == 12
    # what moves lies twice while it is stored, and no pass runs then: 2 * 60 instead of 15 + 28
    assert MEMORY.needed(0, dataclasses.replace(need, moved_tokens=60)) == 300 + 40 + 120


def test_a_rung_counts_what_it_takes_over_at_its_greatest_length() -> None:
    told = [standing(3), standing(1, waiting_tokens=5), standing(2, waiting_tokens=9)]
    # ranks 0 and 1 have 3 and 1; both of rank 2 go to rank 1
    need = need_of_rung(told, 2, longest=10, kv_tokens_per_rank=1000)
    assert need == Need(sequences=3, kv_tokens=30, moved_tokens=20, rows=6 + 14 + 10)
    alone = need_of_rung(told, 1, longest=10, kv_tokens_per_rank=25)
    assert alone == Need(sequences=6, kv_tokens=25, moved_tokens=25, rows=30)


@pytest.mark.parametrize(
    ("hostable", "expected"), [(2, 4), (3, 3), (4, 2), (5, 2), (7, 2), (8, 1), (9, 1), (0, 4)]
)
def test_eight_experts_need_as_many_ranks_as_hold_them(hostable: int, expected: int) -> None:
    # nothing but experts takes memory, so that a rank holds as many as the budget says
    memory = RankMemory(budget=hostable, dense=0, expert=1, training=0, kv_token=0, row=0, logits=0)
    limits = {"longest": 9, "kv_tokens_per_rank": 9}
    rungs = fitting_rungs(memory, [2, 2, 2, 2], [standing(1)] * 4, [1, 2, 3], **limits)
    assert min(rungs, default=4) == expected


def test_a_rung_of_replicas_has_the_memory_of_all_its_ranks() -> None:
    # two replicas of two ranks with two experts each: both ranks of the one that stays take four
    limits = {"longest": 10, "kv_tokens_per_rank": 100}
    need = need_of_rung([standing(1)] * 2, 1, **limits)
    for budget, expected in ((MEMORY.needed(4, need), [1]), (MEMORY.needed(4, need) - 1, [])):
        memory = dataclasses.replace(MEMORY, budget=budget)
        assert fitting_rungs(memory, [2, 2, 2, 2], [standing(1)] * 2, [1], **limits) == expected


def test_a_host_that_is_over_full_already_does_not_stay() -> None:
    assert not fits([5, 1, 2], 2, 4)
    assert fits([4, 1, 3], 2, 4)


memories = st.builds(
    RankMemory,
    budget=st.integers(1, 10**5),
    dense=st.integers(0, 10**4),
    expert=st.integers(1, 3000),
    training=st.integers(0, 10**4),
    kv_token=st.integers(0, 50),
    row=st.integers(0, 50),
    logits=st.integers(0, 50),
)
standings = st.lists(st.builds(standing, st.integers(0, 30), st.integers(0, 90)), min_size=2, max_size=8)


@given(memories, standings, st.integers(1, 6), st.integers(1, 60), st.lists(st.floats(0, 9), min_size=48))
def test_a_rung_that_fits_stays_within_the_budget(memory, told, each, longest, load) -> None:
    size = len(told)
    home = home_placement(each * size, size)
    for rung in range(1, size):
        need = need_of_rung(told, rung, longest=longest, kv_tokens_per_rank=500)
        hostable = memory.hostable(need)
        if fits([each] * size, rung, hostable):
            after = shrunk(home, rung, load[: each * size], hostable=hostable)
            most = max(len(after.hosted_by(position)) for position in range(rung))
            assert memory.needed(most, need) <= memory.budget
        elif hostable >= each:
            # even the fairest share is too much for somebody
            assert memory.needed(-(-each * size // rung), need) > memory.budget


@given(memories, standings, st.integers(1, 6), st.integers(1, 60), st.integers(0, 10**5))
def test_a_larger_budget_never_gives_a_larger_floor(memory, told, each, longest, more) -> None:
    def floor(budget: int) -> int:
        mine, rungs = dataclasses.replace(memory, budget=budget), range(1, len(told))
        limits = {"longest": longest, "kv_tokens_per_rank": 500}
        return min(fitting_rungs(mine, [each] * len(told), told, rungs, **limits), default=len(told))

    assert floor(memory.budget + more) <= floor(memory.budget)
