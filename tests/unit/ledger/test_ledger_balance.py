"""Promise 4: the books balance, and what does not is named."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from flexfloor.ledger.balance import check_tiling, settle, state_seconds
from flexfloor.ledger.types import Interval, State, StepRecord


def record(rank: int, *parts: tuple[float, float, str, str], step: int = 7) -> StepRecord:
    """A record from (start, end, state, stage) parts; it ends with the last of them."""
    intervals = tuple(
        Interval(start_s=start, end_s=end, state=State(state), stage=stage)
        for start, end, state, stage in parts
    )
    return StepRecord(rank=rank, step=step, opened_s=0.0, seconds=intervals[-1].end_s, intervals=intervals)


def good(rank: int) -> StepRecord:
    return record(rank, (0.0, 2.0, "generating", "rollout"), (2.0, 5.0, "training", "update"))


def test_balanced_books_pass() -> None:
    check_tiling([good(0), good(1)])
    assert state_seconds([good(0), good(1)]) == {
        State.GENERATING: 4.0,
        State.SHRINKING: 0.0,
        State.TRAINING: 6.0,
        State.WAITING: 0.0,
    }


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (
            [(0.0, 2.0, "generating", "rollout"), (2.5, 5.0, "training", "update")],
            r"rank 1, step 7: gap of 0.500000 s between rollout \(to 2.000000 s\) and update",
        ),
        (
            [(0.0, 2.0, "generating", "rollout"), (1.75, 5.0, "training", "update")],
            r"rank 1, step 7: overlap of 0.250000 s between rollout",
        ),
        ([(0.5, 5.0, "training", "update")], r"rank 1, step 7: gap of 0.500000 s between start of step"),
    ],
)
def test_gaps_and_overlaps_are_named(parts: list, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_tiling([good(0), record(1, *parts)])


def test_an_account_that_stops_early_is_named() -> None:
    short = replace(good(1), intervals=good(1).intervals[:1])
    with pytest.raises(AssertionError, match=r"gap of 3.000000 s between rollout .* and end of step"):
        check_tiling([good(0), short])


def test_ranks_that_end_apart_steps_that_differ_and_missing_ranks_are_named() -> None:
    late = record(1, (0.0, 6.0, "training", "update"))
    with pytest.raises(AssertionError, match=r"rank 1, step 7: ends at 6.000000 s, rank 0 at 5.000000 s"):
        check_tiling([good(0), late])
    with pytest.raises(AssertionError, match="rank 1: step 8 among records of step 7"):
        check_tiling([good(0), replace(good(1), step=8)])
    with pytest.raises(AssertionError, match=r"step 7: records of ranks \[0, 2\]"):
        check_tiling([good(0), good(2)])


def test_settle_adds_the_wait_for_the_last_rank_in_rank_order() -> None:
    late = record(0, (0.0, 6.0, "training", "update"))
    first, second = settle([good(1), late])
    assert first == late
    assert second.seconds == 6.0
    assert second.intervals[:-1] == good(1).intervals
    assert second.intervals[-1] == Interval(start_s=5.0, end_s=6.0, state=State.WAITING, stage="join")
    check_tiling([first, second])


LENGTHS = st.lists(st.floats(0.001, 10.0), min_size=1, max_size=6)


def tiled(rank: int, lengths: list[float], states: st.DataObject) -> StepRecord:
    edges = [0.0]
    for length in lengths:
        edges.append(edges[-1] + length)
    parts = [
        (start, end, states.draw(st.sampled_from([*State])), f"stage {start}")
        for start, end in pairwise(edges)
    ]
    return record(rank, *parts)


@given(ranks=st.lists(LENGTHS, min_size=1, max_size=5), data=st.data())
def test_settled_books_balance(ranks: list[list[float]], data: st.DataObject) -> None:
    records = settle([tiled(rank, lengths, data) for rank, lengths in enumerate(ranks)])
    check_tiling(records)
    wall = max(sum(lengths) for lengths in ranks)
    assert sum(state_seconds(records).values()) == pytest.approx(len(ranks) * wall)


@given(ranks=st.lists(LENGTHS, min_size=1, max_size=4), shift=st.floats(-5.0, 5.0), data=st.data())
def test_any_edge_that_is_moved_is_found(ranks: list, shift: float, data: st.DataObject) -> None:
    assume(abs(shift) > 1e-5)
    records = list(settle([tiled(rank, lengths, data) for rank, lengths in enumerate(ranks)]))
    victim = data.draw(st.integers(0, len(records) - 1))
    intervals = list(records[victim].intervals)
    index = data.draw(st.integers(0, len(intervals) - 1))
    moved = intervals[index]
    assume(moved.end_s + shift >= moved.start_s)
    intervals[index] = replace(moved, end_s=moved.end_s + shift)
    records[victim] = replace(records[victim], intervals=tuple(intervals))
    with pytest.raises(AssertionError, match=f"rank {victim}, step 7"):
        check_tiling(records)
