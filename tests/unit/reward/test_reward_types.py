from fractions import Fraction

import numpy as np
import pytest

from flexfloor.reward.types import RewardResult, as_result


@pytest.mark.parametrize("returned", [1, 1.0, True, np.float32(1), np.int64(1), np.bool_(True), Fraction(1)])
def test_any_finite_number_is_a_score(returned):
    result = as_result(returned)
    assert result == RewardResult(score=1.0)
    assert type(result.score) is float


def test_other_numbers_of_a_mapping_are_reported_and_the_rest_left_out():
    returned = {"score": 0.5, "accuracy": True, "format": np.float64(0.25), "answer": "7", "note": None}
    assert as_result(returned) == RewardResult(score=0.5, extra={"accuracy": 1.0, "format": 0.25})


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (float("nan"), "score is nan, allowed: a finite number"),
        (np.float32("inf"), "score is inf, allowed: a finite number"),
        (None, "score is None of type NoneType, allowed: a number"),
        ("1.0", "score is '1.0' of type str, allowed: a number"),
        ([1.0], "score is .* of type list"),
        (1 + 0j, "score is .* of type complex"),
        ({"score": float("nan")}, "score is nan"),
        ({"score": None}, "score is None of type NoneType"),
        ({"score": 1.0, "accuracy": float("nan")}, "accuracy is nan"),
        ({"accuracy": 1.0}, "has no score, it has: accuracy"),
        ({}, "has no score, it has: nothing"),
    ],
)
def test_what_is_no_finite_number_is_refused(returned, message):
    with pytest.raises(ValueError, match=message):
        as_result(returned)
