import itertools
import threading
import time

import pytest

from flexfloor.errors import RewardError
from flexfloor.reward.pool import RewardPool
from flexfloor.reward.types import RewardResult


@pytest.fixture
def open_pool():
    pools = []

    def open_pool(scorer, **settings):
        pools.append(RewardPool(scorer, **settings))
        return pools[-1]

    yield open_pool
    for pool in pools:
        pool.close()


def length(prompt, response_text, finish_reason):
    return {"score": len(response_text), "stopped": finish_reason == "eos"}


def failing_on(*texts):
    def scorer(prompt, response_text, finish_reason):
        if response_text in texts:
            raise LookupError(f"no {response_text}")
        return 1.0

    return scorer


def test_each_response_gets_its_own_result(open_pool, make_prompt):
    pool = open_pool(length)
    pool.submit(make_prompt("a"), 0, "xx", "eos")
    pool.submit(make_prompt("a"), 1, "xxx", "length")
    pool.submit(make_prompt("b"), 0, "", "eos")
    assert pool.collect() == {
        ("a", 0): RewardResult(score=2.0, extra={"stopped": 1.0}),
        ("a", 1): RewardResult(score=3.0, extra={"stopped": 0.0}),
        ("b", 0): RewardResult(score=0.0, extra={"stopped": 1.0}),
    }


@pytest.mark.parametrize("order", list(itertools.permutations("abc")))
def test_results_do_not_depend_on_which_is_scored_first(open_pool, make_prompt, order):
    turns = {text: threading.Event() for text in order}
    turns[order[0]].set()

    def scorer(prompt, response_text, finish_reason):
        assert turns[response_text].wait(5)
        for following in order[order.index(response_text) + 1 :][:1]:
            turns[following].set()
        if response_text != "b":
            raise ValueError(response_text)
        return 1.0

    pool = open_pool(scorer, num_workers=3)
    for uid in "cab":
        pool.submit(make_prompt(uid), 0, uid, "eos")
    with pytest.raises(RewardError, match=r"prompt a, response 0: ValueError: a$"):
        pool.collect()
    assert pool.scored() == {("b", 0): RewardResult(score=1.0)}


def test_results_come_sorted(open_pool, make_prompt):
    pool = open_pool(length)
    for uid, index in [("b", 1), ("a", 10), ("b", 0), ("a", 2)]:
        pool.submit(make_prompt(uid), index, "", "eos")
    assert list(pool.collect()) == [("a", 2), ("a", 10), ("b", 0), ("b", 1)]


def test_a_failure_names_the_response_and_keeps_its_cause(open_pool, make_prompt):
    pool = open_pool(failing_on("bad"))
    for index, text in enumerate(["good", "bad"]):
        pool.submit(make_prompt("p/1"), index, text, "eos")
    with pytest.raises(RewardError, match="sums, prompt p/1, response 1: LookupError: no bad") as error:
        pool.collect()
    assert isinstance(error.value.__cause__, LookupError)
    assert error.value.__cause__.__traceback__ is not None


@pytest.mark.parametrize("returned", [float("nan"), None, "1", {"accuracy": 1}])
def test_a_result_that_is_no_number_is_a_failure(open_pool, make_prompt, returned):
    pool = open_pool(lambda *_: returned)
    pool.submit(make_prompt("p/1"), 3, "text", "eos")
    with pytest.raises(RewardError, match="sums, prompt p/1, response 3: ValueError: "):
        pool.collect()


def test_scoring_goes_on_beside_the_caller_and_can_be_counted(open_pool, make_prompt):
    gate = threading.Semaphore(0)

    def scorer(*_):
        assert gate.acquire(timeout=5)
        return 1.0

    pool = open_pool(scorer, num_workers=2)
    for index in range(3):
        pool.submit(make_prompt(), index, "", "eos")
    assert pool.num_pending == 3
    gate.release()
    deadline = time.monotonic() + 5
    while pool.num_pending > 2:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    assert len(pool.scored()) == 1
    gate.release(2)
    assert len(pool.collect()) == 3
    assert pool.num_pending == 0


def test_as_many_threads_score_at_once_as_were_asked_for(open_pool, make_prompt):
    meeting = threading.Barrier(3, timeout=5)
    pool = open_pool(lambda *_: meeting.wait() * 0.0, num_workers=3)
    for index in range(3):
        pool.submit(make_prompt(), index, "", "eos")
    assert len(pool.collect()) == 3


def test_a_hanging_function_is_named_after_the_time_out(open_pool, make_prompt):
    released = threading.Event()
    pool = open_pool(lambda *_: released.wait(), timeout_seconds=0.05)
    pool.submit(make_prompt("p/1"), 0, "", "eos")
    pool.submit(make_prompt("p/2"), 0, "", "eos")
    with pytest.raises(
        RewardError, match=r"prompt p/1, response 0: no result within 0.05 seconds .* 2 responses"
    ):
        pool.collect()
    released.set()


def test_a_slow_function_is_warned_of_and_waited_for(open_pool, make_prompt, caplog, monkeypatch):
    monkeypatch.setattr("flexfloor.reward.pool._PATIENCE_SECONDS", 0.05)
    released = threading.Event()
    pool = open_pool(lambda *_: released.wait() * 0.5, timeout_seconds=60)
    threading.Timer(0.5, released.set).start()
    pool.submit(make_prompt("p/1"), 0, "", "eos")
    assert [result.score for result in pool.collect().values()] == [0.5]
    [warning] = caplog.messages
    assert "prompt p/1, response 0: no result within 0.05 seconds (reward.timeout_seconds = 60)" in warning


def test_a_pool_is_used_step_after_step(open_pool, make_prompt):
    pool = open_pool(length)
    for text in ("x", "xx"):
        pool.submit(make_prompt(), 0, text, "eos")
        assert [result.score for result in pool.collect().values()] == [len(text)]
    assert pool.collect() == {}


def test_a_response_cannot_be_submitted_twice(open_pool, make_prompt):
    pool = open_pool(length)
    pool.submit(make_prompt("p/1"), 0, "", "eos")
    with pytest.raises(AssertionError, match="prompt p/1, response 0 is submitted twice"):
        pool.submit(make_prompt("p/1"), 0, "", "eos")
