import pytest

from flexfloor.errors import ConfigError
from flexfloor.rollout.config import RolloutConfig
from flexfloor.rollout.ending import Ending
from flexfloor.rollout.stop import StopStrings
from flexfloor.rollout.types import Request

EOS, STOP = 9, 7


def request(most=3, forced=None):
    return Request(uid="p", response_index=0, prompt_ids=(1, 2), max_new_tokens=most, forced_length=forced)


def reasons(ending, wanted, token_ids):
    return [ending.reason(wanted, token_ids[:count]) for count in range(1, len(token_ids) + 1)]


def stop():
    return StopStrings([str(STOP)], lambda token_ids: "".join(map(str, token_ids)))


def test_a_response_ends_at_eos_or_at_its_length():
    ending = Ending(eos_id=EOS)
    assert reasons(ending, request(), [4, 5, 6]) == [None, None, "length"]
    assert reasons(ending, request(), [EOS]) == ["eos"]


def test_what_completes_a_response_as_its_last_allowed_token_is_an_end_not_a_cut():
    ending = Ending(eos_id=EOS, stop=stop())
    assert reasons(ending, request(most=1), [EOS]) == ["eos"]
    assert reasons(ending, request(most=1), [STOP]) == ["stop"]
    assert reasons(ending, request(most=1), [4]) == ["length"]


def test_an_ignored_eos_ends_nothing_and_a_stop_string_still_does():
    assert reasons(Ending(eos_id=None), request(), [EOS, EOS, EOS]) == [None, None, "length"]
    assert reasons(Ending(eos_id=None, stop=stop()), request(), [EOS, STOP]) == [None, "stop"]


def test_a_forced_length_holds_whatever_is_sampled():
    ending = Ending(eos_id=EOS, stop=stop())
    assert reasons(ending, request(most=5, forced=3), [EOS, STOP, 4]) == [None, None, "length"]
    assert reasons(ending, request(most=5, forced=1), [EOS]) == ["length"]
    assert reasons(ending, request(most=2, forced=2), [STOP, EOS]) == [None, "length"]


@pytest.mark.parametrize("forced", [0, -1, 4])
def test_a_forced_length_that_does_not_fit_is_refused(forced):
    expected = rf"Request.forced_length = {forced}: must be between 1 and max_new_tokens = 3"
    with pytest.raises(ConfigError, match=expected):
        request(most=3, forced=forced)


def test_a_request_for_nothing_is_refused():
    with pytest.raises(ConfigError, match=r"Request.max_new_tokens = 0: must be at least 1"):
        request(most=0)


def test_an_empty_stop_string_is_refused():
    RolloutConfig(stop=["</answer>", "\n"])
    with pytest.raises(ConfigError, match=r"rollout.stop = \['x', ''\]: must be a list of texts"):
        RolloutConfig(stop=["x", ""])
