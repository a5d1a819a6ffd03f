"""Groups that have all of their responses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexfloor.overlap.complete import CompleteGroups
from flexfloor.overlap.events import Scored


def scored(uid, index):
    return Scored(uid=uid, response_index=index, token_ids=(1,), logprobs=(-0.5,), score=1.0)


def test_a_group_is_handed_out_when_its_last_response_comes_in_order_of_index():
    groups = CompleteGroups(["a", "b"], 2)
    assert groups.add([scored("b", 1), scored("a", 1)]) == []
    assert groups.add([scored("a", 0)]) == [[scored("a", 0), scored("a", 1)]]
    assert groups.add([scored("b", 0)]) == [[scored("b", 0), scored("b", 1)]]


def test_prompts_that_nobody_asked_for_are_left_out():
    groups = CompleteGroups(["a"], 1)
    assert groups.add([scored("z", 0), scored("a", 0)]) == [[scored("a", 0)]]
    assert groups.add([scored("a", 0)]) == []


def test_a_response_that_comes_twice_is_a_fault():
    groups = CompleteGroups(["a"], 2)
    groups.add([scored("a", 0)])
    with pytest.raises(AssertionError, match="a/0 came twice"):
        groups.add([scored("a", 0)])


@given(st.permutations([(uid, index) for uid in "abcd" for index in range(3)]), st.integers(1, 5))
def test_every_group_is_handed_out_once_whatever_the_order(order, at_once):
    groups, found = CompleteGroups("abc", 3), []
    for start in range(0, len(order), at_once):
        found += groups.add([scored(*key) for key in order[start : start + at_once]])
    assert sorted(group[0].uid for group in found) == ["a", "b", "c"]
    assert all([each.response_index for each in group] == [0, 1, 2] for group in found)
