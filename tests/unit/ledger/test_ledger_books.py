"""The books of one rank: what is open when, and that nothing is lost or counted twice."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexfloor.ledger.balance import check_tiling
from flexfloor.ledger.books import Books
from flexfloor.ledger.types import Interval, State, StepRecord


class HandClock:
    """A clock that goes forward only when told to."""

    def __init__(self, now: float = 100.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def books(clock: HandClock) -> Books:
    return Books(0, clock)


def spans(record: StepRecord) -> list[tuple]:
    """Intervals as (start, end, state, stage, idle from)."""
    return [(i.start_s, i.end_s, str(i.state), i.stage, i.idle_from_s) for i in record.intervals]


def test_a_step_with_two_stages_and_the_moments_between(books: Books, clock: HandClock) -> None:
    clock.now = 105.0
    books.open_step(3)
    clock.now += 1
    with books.stage("rollout"):
        clock.now += 4
    with books.stage("reward"):
        clock.now += 2
    clock.now += 0.5
    record = books.close_step()
    assert (record.rank, record.step, record.opened_s, record.seconds) == (0, 3, 5.0, 7.5)
    assert spans(record) == [
        (0.0, 1.0, "waiting", "other", None),
        (1.0, 5.0, "generating", "rollout", None),
        (5.0, 7.0, "waiting", "reward", None),
        (7.0, 7.5, "waiting", "other", None),
    ]


@pytest.mark.parametrize(
    ("stage", "state"),
    [
        ("rollout", State.GENERATING),
        ("validation", State.GENERATING),
        ("old_log_prob", State.TRAINING),
        ("ref", State.TRAINING),
        ("update", State.TRAINING),
        ("sft", State.TRAINING),
        ("reward", State.WAITING),
        ("advantage", State.WAITING),
        ("checkpoint", State.WAITING),
    ],
)
def test_state_of_each_stage(books: Books, clock: HandClock, stage: str, state: State) -> None:
    books.open_step(0)
    with books.stage(stage):
        clock.now += 1
    (interval,) = books.close_step().intervals
    assert (interval.state, interval.stage) == (state, stage)


def test_a_shrink_stays_in_its_stage_and_gives_the_rank_back(books: Books, clock: HandClock) -> None:
    books.open_step(0)
    with books.stage("rollout"):
        clock.now += 3
        with books.state("shrinking"):
            clock.now += 1
        clock.now += 2
    assert spans(books.close_step()) == [
        (0.0, 3.0, "generating", "rollout", None),
        (3.0, 4.0, "shrinking", "rollout", None),
        (4.0, 6.0, "generating", "rollout", None),
    ]


def test_enter_replaces_the_current_state(books: Books, clock: HandClock) -> None:
    books.open_step(0)
    books.enter("generating", "rollout")
    clock.now += 1
    books.enter("training", "update")
    clock.now += 2
    assert spans(books.close_step()) == [
        (0.0, 1.0, "generating", "rollout", None),
        (1.0, 3.0, "training", "update", None),
    ]


def test_idle_outlives_a_shrink_and_ends_with_its_stage(books: Books, clock: HandClock) -> None:
    books.open_step(0)
    with books.stage("rollout"):
        clock.now += 2
        books.mark_idle()
        clock.now += 1
        with books.state("shrinking"):
            clock.now += 1
        clock.now += 1
    with books.stage("validation"):
        clock.now += 1
    assert spans(books.close_step()) == [
        (0.0, 3.0, "generating", "rollout", 2.0),
        (3.0, 4.0, "shrinking", "rollout", None),
        (4.0, 5.0, "generating", "rollout", 4.0),
        (5.0, 6.0, "generating", "validation", None),
    ]


def test_idle_from_an_earlier_reading(books: Books, clock: HandClock) -> None:
    books.open_step(0)
    with books.stage("rollout"):
        clock.now += 5
        books.mark_idle(at=101.5)
    assert spans(books.close_step()) == [(0.0, 5.0, "generating", "rollout", 1.5)]


def test_busy_again_after_sequences_have_moved_here(books: Books, clock: HandClock) -> None:
    books.open_step(0)
    with books.stage("rollout"):
        clock.now += 1
        books.mark_idle()
        clock.now += 1
        with books.state("shrinking"):
            clock.now += 1
            books.mark_busy()
        clock.now += 1
        books.mark_idle()
        clock.now += 1
        books.mark_busy()
        clock.now += 1
    assert spans(books.close_step()) == [
        (0.0, 2.0, "generating", "rollout", 1.0),
        (2.0, 3.0, "shrinking", "rollout", None),
        (3.0, 5.0, "generating", "rollout", 4.0),
        (5.0, 6.0, "generating", "rollout", None),
    ]


def test_a_released_rank_waits_and_its_release_is_forgotten_in_the_next_step(
    books: Books, clock: HandClock
) -> None:
    books.open_step(0)
    with books.stage("rollout"):
        clock.now += 1
        books.mark_idle()
        clock.now += 1
        books.release()
        clock.now += 3
    clock.now += 1
    record = books.close_step()
    assert record.released_s == 2.0
    assert spans(record) == [
        (0.0, 2.0, "generating", "rollout", 1.0),
        (2.0, 5.0, "waiting", "rollout", None),
        (5.0, 6.0, "waiting", "other", None),
    ]
    books.open_step(1)
    clock.now += 1
    assert books.close_step().released_s is None


def test_a_release_in_validation_is_no_release_of_the_step(books: Books, clock: HandClock) -> None:
    books.open_step(0)
    for _ in range(2):
        with books.stage("validation"):
            clock.now += 1
            books.release()
            clock.now += 1
    record = books.close_step()
    assert record.released_s is None
    assert [span[2] for span in spans(record)] == ["generating", "waiting", "generating", "waiting"]


def test_an_exception_leaves_the_enclosing_state(books: Books, clock: HandClock) -> None:
    books.open_step(0)
    with pytest.raises(KeyError), books.stage("reward"):
        clock.now += 1
        raise KeyError
    clock.now += 1
    assert [span[3] for span in spans(books.close_step())] == ["reward", "other"]


@pytest.mark.parametrize("wrong", ["enter", "close_step", "mark_idle"])
def test_nothing_can_be_written_outside_of_a_step(books: Books, wrong: str) -> None:
    arguments = ("training", "update") if wrong == "enter" else ()
    with pytest.raises(AssertionError, match="rank 0"):
        getattr(books, wrong)(*arguments)


def test_misuse_names_the_rank(clock: HandClock) -> None:
    books = Books(5, clock)
    books.open_step(1)
    with pytest.raises(AssertionError, match="rank 5: step 1 is still open at step 2"):
        books.open_step(2)
    with pytest.raises(AssertionError, match="rank 5: only a rank that generates"), books.stage("update"):
        books.mark_idle()
    with books.stage("rollout"):
        clock.now += 1
        with pytest.raises(AssertionError, match="rank 5: rollout is still open"):
            books.close_step()


def test_records_survive_pickling(books: Books, clock: HandClock) -> None:
    books.open_step(0)
    with books.stage("rollout"):
        clock.now += 1
        books.mark_idle()
        clock.now += 1
    record = books.close_step()
    assert pickle.loads(pickle.dumps(record)) == record


def test_only_generating_has_an_idle_part_inside_itself() -> None:
    with pytest.raises(AssertionError, match="no idle part"):
        Interval(start_s=0, end_s=1, state=State.TRAINING, stage="update", idle_from_s=0.5)
    with pytest.raises(AssertionError, match="outside"):
        Interval(start_s=0, end_s=1, state=State.GENERATING, stage="rollout", idle_from_s=2)
    with pytest.raises(AssertionError, match="ends at"):
        Interval(start_s=1, end_s=0, state=State.GENERATING, stage="rollout")


SECONDS = st.sampled_from([0.0, 1e-9, 0.1, 1 / 3, 2.5])
MARKS = ("idle", "busy", "enter", "none")
BLOCKS = st.recursive(
    st.tuples(st.sampled_from(MARKS), SECONDS),
    lambda inner: st.tuples(st.sampled_from(list(State)), SECONDS, st.lists(inner, max_size=3), SECONDS),
    max_leaves=12,
)


def perform(books: Books, clock: HandClock, block: tuple, generating: bool) -> dict[State, float]:
    """Do what the block says; return the seconds that must have gone to nested states."""
    if len(block) == 2:
        mark, seconds = block
        if generating and mark == "idle":
            books.mark_idle()
        if generating and mark == "busy":
            books.mark_busy()
        clock.now += seconds
        return {}
    state, before, inner, after = block
    held = {state: 0.0}
    with books.state(state, stage=f"stage {len(inner)}"):
        clock.now += before
        for each in inner:
            start = clock.now
            nested = perform(books, clock, each, generating or state is State.GENERATING)
            for name, seconds in nested.items():
                held[name] = held.get(name, 0.0) + seconds
            held[state] += clock.now - start - sum(nested.values())
        clock.now += after
        held[state] += before + after
    return held


@given(blocks=st.lists(BLOCKS, max_size=6), start=st.sampled_from([0.0, 0.1, 12345.678]))
def test_intervals_tile_the_step_whatever_happens(blocks: list, start: float) -> None:
    clock = HandClock(start)
    books = Books(0, clock)
    books.open_step(0)
    wanted = dict.fromkeys(State, 0.0)
    for block in blocks:
        begin = clock.now
        held = perform(books, clock, block, generating=False)
        for state, seconds in held.items():
            wanted[state] += seconds
        wanted[State.WAITING] += clock.now - begin - sum(held.values())
    record = books.close_step()
    check_tiling([record])
    for state in State:
        found = sum(i.end_s - i.start_s for i in record.intervals if i.state is state)
        assert found == pytest.approx(wanted[state], abs=1e-6)
    assert all(interval.seconds > 0 for interval in record.intervals)
