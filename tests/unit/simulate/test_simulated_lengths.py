"""Lengths are distributed as published, and a prompt stays itself over epochs."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexfloor.errors import ConfigError, DataError
from flexfloor.simulate.lengths import DrawnLengths
from flexfloor.simulate.recorded import RecordedLengths

MANY = DrawnLengths(num_prompts=4000, num_responses=8, cap=10**9)


def logs(epoch, trace=MANY):
    return np.log(trace.step(epoch).tokens.reshape(trace.num_prompts, trace.num_responses))


def test_the_median_and_the_90th_percentile_are_the_published_ones():
    tokens = np.concatenate([MANY.step(epoch).tokens for epoch in range(20)])
    assert np.quantile(tokens, 0.5) == pytest.approx(1160, rel=0.08)
    assert np.quantile(tokens, 0.9) == pytest.approx(4115, rel=0.08)


@pytest.mark.parametrize("ratio", [1.0, 1.5, 6.0])
def test_the_tail_is_as_long_as_asked(ratio):
    trace = DrawnLengths(num_prompts=4000, num_responses=8, cap=10**9, p90_over_p50=ratio)
    tokens = np.concatenate([trace.step(epoch).tokens for epoch in range(20)])
    assert np.quantile(tokens, 0.9) / np.quantile(tokens, 0.5) == pytest.approx(ratio, rel=0.08)


def test_one_earlier_response_and_eight_predict_as_published():
    """0.66 and 0.76 by the source; by the shares 0.648 and 0.648 / sqrt(0.648 + 0.069 + 0.261 / 8)."""
    before, after = logs(0), logs(1)
    assert np.corrcoef(before[:, 0], after[:, 0])[0, 1] == pytest.approx(0.66, abs=0.03)
    assert np.corrcoef(before.mean(axis=1), after[:, 0])[0, 1] == pytest.approx(0.76, abs=0.03)


def test_sampling_has_its_share_of_the_variance():
    within = logs(0).var(axis=1, ddof=1).mean()
    assert within / 0.988**2 == pytest.approx(0.261, abs=0.01)


@given(st.integers(0, 5), st.integers(1, 3000), st.floats(0.0, 1.0))
def test_lengths_lie_between_one_and_the_cap(epoch, cap, cap_share):
    trace = DrawnLengths(num_prompts=20, num_responses=4, cap=cap, cap_share=cap_share)
    step = trace.step(epoch)
    assert step.tokens.min() >= 1 and step.tokens.max() <= cap
    assert (step.tokens[step.truncated] == cap).all()
    again = trace.step(epoch)
    assert (again.tokens == step.tokens).all() and (again.truncated == step.truncated).all()


def test_some_never_end_by_themselves():
    trace = DrawnLengths(num_prompts=1000, num_responses=8, cap=10**7, cap_share=0.05)
    assert trace.step(0).truncated.mean() == pytest.approx(0.05, abs=0.01)
    assert DrawnLengths(num_prompts=9, num_responses=2, cap_share=1.0).step(0).truncated.all()


def line(**changes):
    row = {"step": 1, "uid": ["b", "a", "b"], "response_index": [1, 0, 0], "num_tokens": [5, 7, 9]}
    return json.dumps(row | {"truncated": [False, False, True]} | changes)


def test_a_recorded_step_comes_prompt_by_prompt(tmp_path):
    (tmp_path / "lengths.jsonl").write_text(line() + "\n")
    recorded = RecordedLengths(tmp_path)
    step = recorded.step(0)
    assert step.uids == ("b", "a") and step.prompt.tolist() == [0, 0, 1]
    assert step.tokens.tolist() == [9, 5, 7] and step.truncated.tolist() == [True, False, False]
    assert recorded.cap == 9


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "there is no step in it"),
        ("{", ":1: not JSON"),
        ("[]", ":1: must be an object with uid, response_index"),
        (line(uid="a"), ":1: uid must be a list"),
        (line(uid=["a"]), ":1: .* one entry for each response"),
        (line(num_tokens=[1, 0, 2]), ":1: num_tokens must be whole numbers of at least 1"),
        (line(num_tokens=[1, True, 2]), ":1: num_tokens must be whole numbers"),
        (line(response_index=[0, 0, 0]), ":1: a response stands there twice"),
        (line() + "\n" + line(num_tokens=[1, 2]), ":2: .* one entry for each response"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_with_its_line(tmp_path, text, complaint):
    (tmp_path / "lengths.jsonl").write_text(text)
    with pytest.raises(DataError, match=complaint):
        RecordedLengths(tmp_path / "lengths.jsonl")


def test_a_file_that_is_not_there_and_a_cap_that_does_not_hold(tmp_path):
    with pytest.raises(ConfigError, match=r"simulate\.lengths\.path = .*run's folder or its lengths\.jsonl"):
        RecordedLengths(tmp_path)
    (tmp_path / "lengths.jsonl").write_text(line())
    with pytest.raises(DataError, match="a response has 9 tokens, and only 8 are allowed"):
        RecordedLengths(tmp_path, cap=8)
