from flexfloor.rollout.live import LiveSequence, PromptQueue
from flexfloor.rollout.types import Request


def request(uid="p", index=0, most=3):
    return Request(uid=uid, response_index=index, prompt_ids=(1, 2), max_new_tokens=most)


def test_a_response_holds_what_was_sampled():
    sequence = LiveSequence.of(request(index=2), seed=0)
    sequence.append(4, -1.0)
    sequence.append(5, -0.5)
    response = sequence.response("length")
    assert (response.uid, response.response_index, response.finish_reason) == ("p", 2, "length")
    assert response.token_ids == (4, 5) and response.logprobs == (-1.0, -0.5)


def test_the_queue_knows_which_prompts_still_wait():
    queue = PromptQueue([request("a", 0), request("a", 1), request("b", 0)])
    assert [taken.uid for taken in queue.take(1)] == ["a"]
    assert queue.waits_for("a") and queue.waits_for("b") and not queue.waits_for("c")
    assert [taken.uid for taken in queue.take(5)] == ["a", "b"]
    assert len(queue) == 0 and not queue.waits_for("a")
