from flexfloor.rollout.live import LiveSequence, PromptQueue
from flexfloor.rollout.types import Request

EOS = 9


def request(uid="p", index=0, most=3):
    return Request(uid=uid, response_index=index, prompt_ids=(1, 2), max_new_tokens=most)


def test_a_response_ends_at_eos_or_at_its_length():
    sequence = LiveSequence.of(request(), seed=0)
    for token_id, reason in ((4, None), (5, None), (6, "length")):
        sequence.append(token_id, -1.0)
        assert sequence.finish_reason(EOS) == reason
    assert sequence.response("length").token_ids == (4, 5, 6)
    ended = LiveSequence.of(request(), seed=0)
    ended.append(EOS, -0.5)
    assert ended.finish_reason(EOS) == "eos"
    assert ended.response("eos").token_ids == (EOS,) and ended.response("eos").logprobs == (-0.5,)


def test_eos_as_the_last_allowed_token_is_an_end_not_a_cut():
    sequence = LiveSequence.of(request(most=1), seed=0)
    sequence.append(EOS, -0.5)
    assert sequence.finish_reason(EOS) == "eos"


def test_the_queue_knows_which_prompts_still_wait():
    queue = PromptQueue([request("a", 0), request("a", 1), request("b", 0)])
    assert [taken.uid for taken in queue.take(1)] == ["a"]
    assert queue.waits_for("a") and queue.waits_for("b") and not queue.waits_for("c")
    assert [taken.uid for taken in queue.take(5)] == ["a", "b"]
    assert len(queue) == 0 and not queue.waits_for("a")
