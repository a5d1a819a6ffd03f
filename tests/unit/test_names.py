"""Suggestions for a mistyped name."""

from __future__ import annotations

import pytest

from flexfloor.names import did_you_mean, nearest

RECIPES = ["tiny-mixtral", "tiny-mixtral-static", "mixtral-8x7b"]


@pytest.mark.parametrize("typed", ["tiny-mixtrl", "tiny_mixtral", "TINY_MIXTRAL", "tinymixtral"])
def test_the_nearest_name_comes_first(typed: str) -> None:
    assert nearest(typed, RECIPES)[0] == "tiny-mixtral"


def test_nothing_is_near_to_a_name_unlike_all() -> None:
    assert nearest("zzz", RECIPES) == []


def test_a_suggestion_is_given_or_all_there_is() -> None:
    assert did_you_mean("trian", ["train", "rollout"]) == "did you mean train?"
    assert did_you_mean("zzz", ["train", "rollout"]) == "there is rollout, train"
    assert did_you_mean("zzz", []) == "there is none"


def test_at_most_three_names_are_suggested() -> None:
    assert len(nearest("name_x", [f"name_{letter}" for letter in "abcdefgh"])) == 3
