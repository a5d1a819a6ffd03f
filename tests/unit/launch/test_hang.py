"""Which rank hangs, told from made-up beats on a made-up clock."""

from __future__ import annotations

import dataclasses

import pytest

from flexfloor.heartbeat import Beat
from flexfloor.launch.hang import Hang, HangKind, HangWatch, hang_message, likely_cause

LIMIT = 10.0


class Ranks:
    """Ranks that work, wait, stand or are stopped, second by second."""

    def __init__(self, count: int, **settings: float) -> None:
        self.beats = {rank: Beat(step=3, stage="rollout", **settings) for rank in range(count)}
        self.watch = HangWatch(LIMIT)
        self.now = 0.0

    def second(self, *states: str, seconds: float = 1.0) -> Hang | None:
        """Let the clock advance; `states` has one word a rank: work, wait, stand, stopped or left."""
        self.now += seconds
        for rank, state in enumerate(states):
            beat = self.beats[rank]
            self.beats[rank] = dataclasses.replace(
                beat,
                beats=beat.beats + (state == "work"),
                alive=beat.alive + (state != "stopped"),
                waits=beat.waits if state == "stopped" else state == "wait",
            )
        shown = {rank: self.beats[rank] for rank, state in enumerate(states) if state != "left"}
        return self.watch.look(self.now, shown)

    def until_a_hang(self, *states: str, most: int = 200) -> tuple[int, Hang] | None:
        """Seconds until a hang is seen, and the hang."""
        for second in range(most):
            if (hang := self.second(*states)) is not None:
                return second, hang
        return None


@pytest.mark.parametrize(
    ("states", "rank", "kind"),
    [
        (("wait", "stand", "wait"), 1, HangKind.STUCK),
        (("work", "stand", "work"), 1, HangKind.STUCK),
        (("wait", "wait", "stopped"), 2, HangKind.FROZEN),
        (("stopped", "work", "work"), 0, HangKind.FROZEN),
        (("left", "wait", "stand"), 2, HangKind.STUCK),
    ],
)
def test_the_rank_that_does_not_get_on_is_named_after_the_limit(states, rank, kind) -> None:
    ranks = Ranks(3)
    assert ranks.until_a_hang("work", "work", "work", most=50) is None
    seconds, hang = ranks.until_a_hang(*states)
    assert (hang.rank, hang.kind) == (rank, kind)
    assert LIMIT - 1 <= seconds <= LIMIT + 1 and hang.seconds == pytest.approx(LIMIT, abs=1.5)


def test_ranks_that_all_wait_hang_and_the_one_furthest_behind_is_named() -> None:
    ranks = Ranks(3)
    ranks.second("work", "work", "work")
    ranks.second("work", "wait", "work")
    _, hang = ranks.until_a_hang("wait", "wait", "wait")
    assert (hang.rank, hang.kind) == (1, HangKind.APART)
    assert "rank 0 at" in likely_cause(hang, {0: Beat(where="a.py:1 in f"), 1: Beat()})


@pytest.mark.parametrize("states", [("work", "wait", "wait"), ("wait", "work", "left"), ("left",) * 3])
def test_waiting_for_a_rank_that_works_is_no_hang(states) -> None:
    assert Ranks(3).until_a_hang(*states) is None


def test_a_rank_that_begins_to_work_after_a_long_wait_has_its_whole_time() -> None:
    ranks = Ranks(2)
    assert ranks.until_a_hang("work", "wait", most=100) is None
    seconds, hang = ranks.until_a_hang("work", "stand")
    assert hang.rank == 1 and seconds >= LIMIT - 1


def test_ranks_that_waited_for_one_that_is_done_have_their_whole_time_again() -> None:
    ranks = Ranks(3)
    assert ranks.until_a_hang("work", "wait", "wait", most=100) is None
    seconds, hang = ranks.until_a_hang("left", "wait", "wait")
    assert hang.kind is HangKind.APART and seconds == pytest.approx(LIMIT, abs=1.5)


def test_an_allowance_holds_for_the_rank_and_for_those_that_wait_for_it() -> None:
    ranks = Ranks(2)
    ranks.beats[0] = dataclasses.replace(ranks.beats[0], allowed_seconds=30.0)
    seconds, hang = ranks.until_a_hang("stand", "wait")
    assert hang.rank == 0 and seconds == pytest.approx(LIMIT + 30, abs=1.5)
    stopped = Ranks(2, allowed_seconds=1000.0)
    seconds, hang = stopped.until_a_hang("stopped", "wait")
    assert hang.kind is HangKind.FROZEN and seconds <= LIMIT + 1, "an allowance is not for standing still"


@pytest.mark.parametrize("stopped", [True, False])
def test_an_interpreter_may_stand_still_while_it_loads_libraries(stopped: bool) -> None:
    ranks = Ranks(2, allowed_seconds=30.0)
    ranks.beats[0] = dataclasses.replace(ranks.beats[0], stage="start-up", stopped=stopped)
    seconds, _ = ranks.until_a_hang("stopped", "wait")
    assert seconds == pytest.approx(LIMIT if stopped else LIMIT + 30, abs=1.5)


def test_time_in_which_the_watcher_was_stopped_too_does_not_count() -> None:
    ranks = Ranks(2)
    ranks.second("work", "work")
    assert ranks.second("stopped", "stopped", seconds=3600) is None
    assert ranks.until_a_hang("work", "work") is None


def test_nothing_hangs_without_a_limit_or_before_all_have_shown_themselves() -> None:
    ranks = Ranks(2)
    ranks.watch = HangWatch(0)
    assert ranks.until_a_hang("stand", "stopped") is None
    watch = HangWatch(LIMIT)
    for second in range(100):
        assert watch.look(second, {0: Beat(alive=second, waits=True), 1: None}) is None


@pytest.mark.parametrize(
    ("kind", "stopped", "words"),
    [
        (HangKind.FROZEN, True, "stopped, by SIGSTOP"),
        (HangKind.FROZEN, False, "native code"),
        (HangKind.STUCK, False, "it stands at reward.py:7 in score"),
    ],
)
def test_the_message_names_rank_step_stage_and_cause(kind, stopped, words) -> None:
    beats = {1: Beat(step=4, stage="update", where="reward.py:7 in score", stopped=stopped)}
    hang = Hang(rank=1, kind=kind, seconds=47.2)
    message = hang_message("rank 1 of 2", hang, beats, limit=45)
    first, second = message.splitlines()
    assert first == (
        "rank 1 of 2 hangs in step 4, stage update: nothing was done for 47 seconds "
        "(launch.hang_seconds = 45)"
    )
    assert second.startswith("likely cause: ") and words in second
