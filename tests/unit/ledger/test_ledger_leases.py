"""Leases: what the books grant and refuse, what all ranks must agree on, and what is left of them on disk."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexfloor.ledger.balance import check_tiling, settle
from flexfloor.ledger.books import Books
from flexfloor.ledger.leases import check_leases
from flexfloor.ledger.store import LedgerFile, read_ledger
from flexfloor.ledger.trace import trace_events
from flexfloor.ledger.types import Lease, State, StepRecord


class HandClock:
    """A clock that goes forward only when told to."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def leased_step(rank: int = 1, *, ranks: tuple[int, ...] = (1, 2), pause: float = 0.5) -> StepRecord:
    """Generates for 2 s, is released, waits 1 s, is leased for 3 s, waits, and is leased again for 1 s."""
    clock = HandClock()
    books = Books(rank, clock)
    books.open_step(4)
    with books.stage("rollout"):
        clock.now += 2
        books.release()
        clock.now += 1
        with books.lease("update", ranks):
            clock.now += 3
        clock.now += pause
        with books.lease("update", ranks):
            clock.now += 1
    return books.close_step()


def whole_step() -> list[StepRecord]:
    """Rank 0 generates to the end; the others are leased meanwhile."""
    clock = HandClock()
    books = Books(0, clock)
    books.open_step(4)
    with books.stage("rollout"):
        clock.now += 9
    return list(settle([books.close_step(), leased_step(1), leased_step(2)]))


def test_a_leased_rank_trains_and_waits_again_afterwards() -> None:
    record = leased_step()
    assert [(each.start_s, each.end_s, str(each.state), each.stage) for each in record.intervals] == [
        (0.0, 2.0, "generating", "rollout"),
        (2.0, 3.0, "waiting", "rollout"),
        (3.0, 6.0, "training", "update"),
        (6.0, 6.5, "waiting", "rollout"),
        (6.5, 7.5, "training", "update"),
    ]
    assert record.released_s == 2.0
    assert record.leases == (
        Lease(owner="update", ranks=(1, 2), start_s=3.0, end_s=6.0),
        Lease(owner="update", ranks=(1, 2), start_s=6.5, end_s=7.5),
    )


def test_leases_that_follow_at_once_are_two_with_an_interval_each() -> None:
    record = leased_step(pause=0.0)
    edges = [(each.start_s, each.end_s) for each in record.intervals if each.state is State.TRAINING]
    assert edges == [(each.start_s, each.end_s) for each in record.leases] == [(3.0, 6.0), (6.0, 7.0)]


def new_books() -> Books:
    books = Books(1, HandClock())
    books.open_step(4)
    return books


def refuse_lease(books: Books, owner: str, ranks: list[int], message: str) -> None:
    with pytest.raises(AssertionError, match=message), books.lease(owner, ranks):
        pass


@pytest.mark.parametrize("state", ["generating", "shrinking", "training"])
def test_only_a_rank_that_waits_is_leased(state: str) -> None:
    books, message = new_books(), f"rank 1: a lease to update while it is {state}: rollout"
    with books.state(state, "rollout"):
        refuse_lease(books, "update", [1], message)
        with books.state("waiting", "reward"):
            refuse_lease(books, "update", [1], message)


def test_a_leased_rank_is_not_leased_again_nor_does_anything_else() -> None:
    books = new_books()
    with books.lease("update", [1]):
        refuse_lease(books, "ref", [1], "rank 1: a lease to ref while it is training: update")
        for state in (State.GENERATING, State.SHRINKING):
            with pytest.raises(AssertionError, match=f"rank 1: {state}: update in a lease"):
                books.enter(state)
        message = "rank 1: generating: validation in a lease"
        with pytest.raises(AssertionError, match=message), books.stage("validation"):
            pass
        with books.stage("old_log_prob"):
            pass
    assert [lease.owner for lease in books.close_step().leases] == ["update"]


def test_a_leased_rank_may_wait_for_something_to_train() -> None:
    clock = HandClock()
    books = Books(1, clock)
    books.open_step(4)
    with books.stage("rollout"):
        clock.now += 2
        books.release()
        with books.lease("update", [1, 2]):
            clock.now += 3
            with books.state(State.WAITING):
                clock.now += 4
            clock.now += 5
    record = books.close_step()
    assert [(each.end_s, str(each.state), each.stage) for each in record.intervals] == [
        (2.0, "generating", "rollout"),
        (5.0, "training", "update"),
        (9.0, "waiting", "update"),
        (14.0, "training", "update"),
    ]
    check_leases([replace(record, rank=0, leases=()), record, replace(record, rank=2)])


def test_a_lease_that_grows_ends_and_another_begins_at_once() -> None:
    clock = HandClock()
    books = Books(2, clock)
    books.open_step(4)
    with books.stage("rollout"):
        books.release()
        with books.lease("update", [2, 3]):
            clock.now += 3
        with books.lease("update", [1, 2, 3]):
            clock.now += 1
    record = books.close_step()
    assert [(each.ranks, each.start_s, each.end_s) for each in record.leases] == [
        ((2, 3), 0.0, 3.0),
        ((1, 2, 3), 3.0, 4.0),
    ]


def test_a_lease_that_is_open_at_the_end_of_the_step_is_refused() -> None:
    books = new_books()
    message = "rank 1: update is still open at the step's end"
    with books.lease("update", [1]), pytest.raises(AssertionError, match=message):
        books.close_step()


def test_a_lease_of_other_ranks_is_refused() -> None:
    refuse_lease(new_books(), "update", [2, 3], r"a lease to update is one of ranks \[2, 3\]")


def test_a_lease_is_forgotten_in_the_next_step_and_after_an_exception() -> None:
    books = new_books()
    with pytest.raises(ZeroDivisionError), books.lease("update", [1]):
        raise ZeroDivisionError
    with books.lease("ref", [1]):
        pass
    assert [lease.owner for lease in books.close_step().leases] == ["ref"]
    books.open_step(5)
    assert books.close_step().leases == ()


def test_what_all_ranks_say_of_their_leases_passes() -> None:
    check_tiling(whole_step())
    check_leases(whole_step())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"ranks": (0, 1, 2)}, r"step 4: leases to update of ranks \(0, 1, 2\), noted by rank: \{1: 1\}"),
        ({"owner": "ref"}, r"step 4: leases to .* noted by rank: "),
        ({"start_s": 1.5}, r"rank 1, step 4: generating for 0.500000 s of a lease to update"),
        ({"end_s": 12.0}, r"rank 1, step 4: a lease to update until 12.000000 s, outside of the step"),
        (
            {"start_s": 6.6, "end_s": 7.0},
            r"rank 1, step 4: a lease to update from 6.500000 s, within one to update",
        ),
    ],
)
def test_a_wrong_lease_is_named(wrong: dict, message: str) -> None:
    records = whole_step()
    first, second = records[1].leases
    records[1] = replace(records[1], leases=(replace(first, **wrong), second))
    with pytest.raises(AssertionError, match=message):
        check_leases(records)


def test_a_lease_that_one_rank_does_not_note_is_named() -> None:
    records = whole_step()
    records[2] = replace(records[2], leases=records[2].leases[:1])
    with pytest.raises(AssertionError, match=r"noted by rank: \{1: 2, 2: 1\}"):
        check_leases(records)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3)), max_size=6))
def test_leases_of_any_length_tile_the_step_and_are_found_right(parts: list) -> None:
    clock = HandClock()
    books = Books(0, clock)
    books.open_step(0)
    expected = []
    for before, within, nested in parts:
        clock.now += before
        start = clock.now - 100.0
        with books.lease("update", [0]):
            clock.now += within
            with books.state("training", "ref"):
                clock.now += nested
        expected.append((start, clock.now - 100.0))
    record = books.close_step()
    check_tiling([record])
    check_leases([record])
    assert [(lease.start_s, lease.end_s) for lease in record.leases] == expected
    trained = sum(each.seconds for each in record.intervals if each.state is State.TRAINING)
    assert trained == sum(end - start for start, end in expected)


def test_what_is_read_equals_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    file = LedgerFile(path)
    file.append(whole_step())
    file.close()
    assert read_ledger(path) == [tuple(whole_step())]
    line = json.loads(path.read_text())
    for rank in line["ranks"]:
        del rank["leases"]
    path.write_text(json.dumps(line) + "\n")
    [without] = read_ledger(path)
    assert without == tuple(replace(record, leases=()) for record in whole_step())


def test_the_trace_shows_a_lease_around_its_training() -> None:
    events = [event for event in trace_events([whole_step()], "run") if event["ph"] == "X"]
    found = [
        (e["name"], e["ts"], e["dur"], e["args"]["ranks"])
        for e in events
        if e["cat"] == "lease" and e["tid"] == 2
    ]
    assert found == [("lease: update", 3e6, 3e6, [1, 2]), ("lease: update", 6.5e6, 1e6, [1, 2])]
    order = [e["name"] for e in events if e["tid"] == 2 and e["ts"] == 3e6]
    assert order == ["lease: update", "training: update"], (
        "the outer of two events that start together is first"
    )
