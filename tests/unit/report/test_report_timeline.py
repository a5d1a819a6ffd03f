"""The page's time line: exact where it is kept, bounded and told where it is not."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flexfloor.ledger.types import EARLY_UPDATE, Interval, State, StepRecord
from flexfloor.report.notes import timeline_notes
from flexfloor.report.timeline import BLANK, lay_out

G, S, T, W = State.GENERATING, State.SHRINKING, State.TRAINING, State.WAITING
Part = tuple[float, State, str, float | None]


def record(step: int, rank: int, opened_s: float, parts: Sequence[Part]) -> StepRecord:
    intervals, start = [], 0.0
    for end, state, stage, idle in parts:
        intervals.append(Interval(start_s=start, end_s=end, state=state, stage=stage, idle_from_s=idle))
        start = end
    return StepRecord(rank=rank, step=step, opened_s=opened_s, seconds=start, intervals=tuple(intervals))


def two_ranks(step: int, opened_s: float) -> list[StepRecord]:
    """4 s of rollout, of which rank 0 is idle for 1 s and rank 1 has left after 2 s, and 4 s of update."""
    stays = [(4.0, G, "rollout", 3.0), (8.0, T, "update", None)]
    leaves = [
        (1.5, G, "rollout", None),
        (2.0, S, "rollout", None),
        (4.0, W, "rollout", None),
        (8.0, T, "update", None),
    ]
    return [record(step, 0, opened_s, stays), record(step, 1, opened_s, leaves)]


def told(timeline, block, rank):
    """Runs of a rank as (seconds, state, marks), read back from the block."""
    flat = timeline.blocks[block].runs[rank]
    found = []
    for length, index in zip(flat[::2], flat[1::2], strict=True):
        kind = None if index == BLANK else timeline.kinds[index]
        marks = kind and "".join(
            letter
            for letter, is_so in (
                ("i", kind.is_idle),
                ("r", kind.is_released),
                ("e", kind.is_early),
                ("a", kind.is_active),
            )
            if is_so
        )
        found.append((length / 1e6, kind and kind.state, marks))
    return found


def test_a_step_in_full_is_the_ledgers() -> None:
    timeline = lay_out([two_ranks(7, 100.0), two_ranks(8, 109.0)])
    assert [(b.first, b.last, b.start_s, b.seconds, b.is_full) for b in timeline.blocks] == [
        (7, 7, 0.0, 8.0, True),
        (8, 8, 9.0, 8.0, True),
    ]
    assert told(timeline, 1, 0) == [(3.0, G, "a"), (1.0, G, "ia"), (4.0, T, "")]
    assert told(timeline, 1, 1) == [(1.5, G, "a"), (0.5, S, "a"), (2.0, W, "r"), (4.0, T, "")]
    assert timeline.full_from == 7 and timeline.num_ranks == 2
    assert timeline_notes(timeline) == []


def test_validation_is_generation_but_takes_no_part_in_the_rollout() -> None:
    timeline = lay_out([[record(0, 0, 0.0, [(1.0, G, "validation", None), (2.0, S, "validation", None)])]])
    assert told(timeline, 0, 0) == [(1.0, G, ""), (1.0, S, "")]


def test_training_in_a_lease_is_early() -> None:
    parts = [(1.0, T, EARLY_UPDATE, None), (3.0, W, EARLY_UPDATE, None), (4.0, T, "update", None)]
    timeline = lay_out([[record(0, 0, 0.0, parts)]])
    assert told(timeline, 0, 0) == [(1.0, T, "e"), (2.0, W, ""), (1.0, T, "")]


def test_an_interval_that_is_idle_from_its_start_has_no_busy_run() -> None:
    timeline = lay_out([[record(0, 0, 0.0, [(2.0, G, "rollout", 0.0)])]])
    assert told(timeline, 0, 0) == [(2.0, G, "ia")]


def test_edges_do_not_drift() -> None:
    """A thousand intervals of a third of a microsecond more than 10 us end within one of them."""
    parts = [((i + 1) * (1e-5 + 1e-6 / 3), (G, T)[i % 2], "rollout", None) for i in range(1000)]
    [runs] = lay_out([[record(0, 0, 0.0, parts)]]).blocks[0].runs
    assert sum(runs[::2]) == round(parts[-1][0] * 1e6) == 10333


def test_the_newest_steps_are_kept_and_the_others_sampled() -> None:
    """A step has 7 runs, so that 15 hold two steps; 16 more are 4 columns for 2 ranks and 2 blocks."""
    steps = [two_ranks(i, 8.0 * i) for i in range(6)]
    timeline = lay_out(steps, max_full=15, max_coarse=16)
    assert [(b.first, b.last, b.is_full) for b in timeline.blocks] == [
        (0, 1, False),
        (2, 3, False),
        (4, 4, True),
        (5, 5, True),
    ]
    # Columns of 4 s: generating, training, generating, training.
    assert told(timeline, 0, 0) == [(4.0, G, "a"), (4.0, T, ""), (4.0, G, "a"), (4.0, T, "")]
    assert told(timeline, 0, 1) == [(4.0, W, "r"), (4.0, T, ""), (4.0, W, "r"), (4.0, T, "")]
    [note] = timeline_notes(timeline)
    assert "Steps 0 to 3 are thinned: a block of up to 2 steps" in note
    assert "Steps from 4 on are shown as they were" in note


def test_blocks_share_steps_rather_than_have_too_few_columns() -> None:
    """16 runs are 2 blocks of 4 columns for 2 ranks, so that the third step is alone in its block."""
    timeline = lay_out([two_ranks(i, 8.0 * i) for i in range(3)], max_full=0, max_coarse=16)
    assert [(b.first, b.last) for b in timeline.blocks] == [(0, 1), (2, 2)]
    assert told(timeline, 1, 0) == [(4.0, G, "a"), (4.0, T, "")]
    assert told(timeline, 1, 1) == [(2.0, G, "a"), (2.0, W, "r"), (4.0, T, "")]


def test_a_coarse_block_is_blank_where_no_step_was() -> None:
    """Steps of 1 s at 0 and 7 s: of four columns of 2 s the first two and more hold no step's time."""
    steps = [[record(i, 0, 7.0 * i, [(1.0, T, "update", None)])] for i in range(2)]
    timeline = lay_out(steps, max_full=0, max_coarse=4)
    assert timeline.full_from is None
    assert told(timeline, 0, 0) == [(2.0, T, ""), (4.0, None, None), (2.0, T, "")]
    assert "shown as they were" not in timeline_notes(timeline)[0]


def test_a_rank_that_only_later_steps_have_gets_a_row() -> None:
    timeline = lay_out([[two_ranks(0, 0.0)[0]], two_ranks(1, 8.0)])
    assert [len(block.runs) for block in timeline.blocks] == [1, 2]
    assert timeline.num_ranks == 2


@settings(max_examples=60)
@given(
    num_steps=st.integers(1, 40),
    num_ranks=st.integers(1, 6),
    max_full=st.integers(0, 300),
    max_coarse=st.integers(6, 300),
)
def test_the_size_is_bounded_and_no_step_is_lost(
    num_steps: int, num_ranks: int, max_full: int, max_coarse: int
) -> None:
    steps = [[record(i, r, 3.0 * i, ZIGZAG) for r in range(num_ranks)] for i in range(num_steps)]
    timeline = lay_out(steps, max_full=max_full, max_coarse=max_coarse)
    full, coarse = (
        sum(len(runs) // 2 for block in timeline.blocks if block.is_full is kept for runs in block.runs)
        for kept in (True, False)
    )
    assert full <= max_full and coarse <= max_coarse
    shown = [step for block in timeline.blocks for step in range(block.first, block.last + 1)]
    assert shown == list(range(num_steps))
    for block in timeline.blocks:
        for runs in block.runs:
            assert sum(runs[::2]) == pytest.approx(block.seconds * 1e6, abs=1)


ZIGZAG: list[Part] = [(0.1 * i + 0.1, (G, W)[i % 2], "rollout", None) for i in range(20)]
