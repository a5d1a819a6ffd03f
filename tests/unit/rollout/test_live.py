from flexfloor.rollout.live import LiveSequence, WaitingQueue
from flexfloor.rollout.types import Request


def sequence(uid="p", index=0, most=3):
    request = Request(uid=uid, response_index=index, prompt_ids=(1, 2), max_new_tokens=most)
    return LiveSequence.of(request, seed=0)


def test_a_response_holds_what_was_sampled():
    found = sequence(index=2)
    found.append(4, -1.0)
    found.append(5, -0.5)
    assert (found.num_prompt_tokens, found.num_tokens, found.length) == (2, 2, 4)
    response = found.response("length")
    assert (response.uid, response.response_index, response.finish_reason) == ("p", 2, "length")
    assert response.token_ids == (4, 5) and response.logprobs == (-1.0, -0.5)


def test_the_queue_knows_whose_new_siblings_still_wait():
    queue = WaitingQueue([sequence("a", 0), sequence("a", 1), sequence("b", 0)])
    assert [taken.uid for taken in queue.take(1)] == ["a"]
    assert queue.new_sibling_waits("a") and queue.new_sibling_waits("b") and not queue.new_sibling_waits("c")
    assert [taken.uid for taken in queue.take(2)] == ["a", "b"]
    assert len(queue) == 0 and not queue.new_sibling_waits("a")


def test_sequences_that_yielded_wait_at_the_head_in_their_order_and_are_not_new():
    queue = WaitingQueue([sequence(uid, 0) for uid in "abcd"])
    _, second, third = queue.take(3)
    for each in (second, third):
        each.append(7, -1.0)
    queue.put_back([second, third])
    assert [each.uid for each in queue] == ["b", "c", "d"]
    assert not queue.new_sibling_waits("b") and queue.new_sibling_waits("d")
    assert queue.take(1) == [second] and queue.take(2)[0] is third
    assert not queue.new_sibling_waits("d")


def test_a_sibling_that_yielded_and_goes_on_is_not_taken_for_a_new_one():
    queue = WaitingQueue([sequence("a", 0), sequence("a", 1)])
    [first] = queue.take(1)
    first.append(7, -1.0)
    queue.put_back([first])
    assert queue.take(1) == [first]
    assert queue.new_sibling_waits("a")


def test_what_waited_elsewhere_waits_as_near_to_the_head():
    queue = WaitingQueue([sequence(uid) for uid in "abcd"])
    queue.merge([sequence(uid) for uid in "xy"])
    assert [each.uid for each in queue] == ["a", "x", "b", "c", "y", "d"]
    assert queue.new_sibling_waits("x")
    queue.take(6)
    assert not queue.new_sibling_waits("x") and len(queue) == 0
