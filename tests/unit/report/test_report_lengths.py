"""What the page shows of response lengths: bins, coverage, and what stays of many responses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexfloor.report.lengths import bin_edges, gather_lengths
from flexfloor.report.notes import length_notes
from flexfloor.report.predicted import Comparison
from flexfloor.report.thin import spread_out
from flexfloor.track.lengths import StepLengths


def step(
    tokens: list[int], quantiles: list[tuple[float, float, float]] | None = None, cap: int = 10**9
) -> StepLengths:
    low, middle, high = zip(*quantiles, strict=True) if quantiles else (None, None, None)
    return StepLengths(
        uid=[f"p{i}" for i in range(len(tokens))],
        response_index=[0] * len(tokens),
        num_tokens=tokens,
        truncated=[length >= cap for length in tokens],
        predicted_p10=list(low) if low else None,
        predicted_p50=list(middle) if middle else None,
        predicted_p90=list(high) if high else None,
    )


def test_short_lengths_have_a_bin_each() -> None:
    assert bin_edges(3, 6) == [3, 4, 5, 6, 7]
    assert bin_edges(5, 5) == [5, 6]


def test_long_lengths_share_bins_that_grow_by_a_factor() -> None:
    assert bin_edges(1, 4095, max_bins=4) == [1, 8, 64, 512, 4096]


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=50))
def test_every_response_is_in_one_bin(tokens: list[int]) -> None:
    lengths = gather_lengths([(1, step(tokens))])
    assert lengths is not None
    for count, low, high in zip(lengths.steps[0].counts, lengths.edges, lengths.edges[1:], strict=False):
        assert count == sum(low <= length < high for length in tokens)
    assert sum(lengths.steps[0].counts) == len(tokens)


def test_steps_and_all_of_them() -> None:
    lengths = gather_lengths([(1, step([1, 2, 2], cap=2)), (3, step([4])), (4, step([]))])
    assert lengths is not None
    assert lengths.edges == [1, 2, 3, 4, 5]
    assert [(each.step, each.counts) for each in lengths.steps] == [(1, [1, 2, 0, 0]), (3, [0, 0, 0, 1])]
    first = lengths.steps[0]
    assert (first.truncated, first.p50, first.p90, first.longest) == (2, 2.0, 2.0, 2)
    every = lengths.every_step
    assert (every.step, every.counts, every.truncated, every.longest) == (None, [1, 2, 0, 1], 2, 4)
    assert lengths.predicted is None
    assert length_notes(lengths) == ["No length was predicted in this run."]


def test_many_steps_are_thinned_and_all_are_counted() -> None:
    lengths = gather_lengths(((i, step([i + 1])) for i in range(9)), max_steps=3)
    assert lengths is not None
    assert [each.step for each in lengths.steps] == [0, 4, 8]
    assert sum(lengths.every_step.counts) == 9
    assert length_notes(lengths)[0].startswith("3 of 9 steps have a histogram of their own")


def test_no_lengths_are_told() -> None:
    assert gather_lengths([]) is None
    assert "its folder has no lengths.jsonl" in length_notes(None)[0]


def test_coverage_counts_both_ends_and_truncated_ones_apart() -> None:
    """Lengths 10, 20, 9, 21 and 30 (truncated) against 10 to 20; and 30 (truncated) against 10 to 30."""
    narrow, wide = (10.0, 15.0, 20.0), (10.0, 15.0, 30.0)
    found = Comparison()
    found.add(1, step([5, 5]))
    found.add(2, step([10, 20, 9, 21, 30, 30], [narrow] * 5 + [wide], cap=30))
    predicted = found.predicted()
    assert predicted is not None
    assert (predicted.num_responses, predicted.num_covered) == (6, 3)
    assert (predicted.num_truncated, predicted.num_covered_truncated) == (2, 1)
    last = predicted.points[-1]
    assert (last.step, last.uid, last.num_tokens, last.truncated) == (2, "p5", 30, True)
    assert (last.p10, last.p50, last.p90) == wide


def test_drawn_responses_are_spread_over_the_run() -> None:
    """Of 5 x 7 responses at most 10 stay: every fourth, counted over all steps."""
    found = Comparison(max_points=10)
    for i in range(5):
        found.add(i, step([7 * i + k + 1 for k in range(7)], [(1.0, 2.0, 3.0)] * 7))
    predicted = found.predicted()
    assert predicted is not None
    assert [point.num_tokens for point in predicted.points] == [1, 5, 9, 13, 17, 21, 25, 29, 33]
    assert predicted.num_responses == 35
    assert predicted.num_covered == 3


@pytest.mark.parametrize(
    ("num_entries", "limit", "kept"),
    [(3, 5, [0, 1, 2]), (5, 5, [0, 1, 2, 3, 4]), (9, 3, [0, 4, 8]), (1000, 2, [0, 999]), (0, 4, [])],
)
def test_entries_that_stay(num_entries: int, limit: int, kept: list[int]) -> None:
    assert spread_out(num_entries, limit) == kept
