"""The summary of a run and the lines that show it, with numbers worked out by hand."""

from __future__ import annotations

import pytest

from flexfloor.track.summary import Ends, summarize, validation_series
from flexfloor.track.text import stage_rows, step_line, summary_rows, summary_title

STEPS: dict[int, dict[str, float]] = {
    0: {
        "val-core/reasoning_gym/a/mean@1": 0.1,
        "val-core/b/mean@4": 0.3,
        "timing_s/sft": 50.0,
        "timing_s/testing": 5.0,
        "timing_s/step": 60.0,
    },
    **{
        step: {
            "critic/score/mean": step / 10,
            "response_length/mean": 20.0 + step,
            "response_length/p50": 10.0 + step,
            "response_length/p90": 40.0,
            "response_length/max": 60.0 - step,
            "rollout/throughput": 1000.0 * step,
            "timing_s/gen": 3.0,
            "timing_s/update_actor": 1.5,
            "timing_s/step": 4.5,
            "perf/peak_memory_gib": 2.0 + step / 4,
        }
        for step in (1, 2, 3, 4)
    },
}
STEPS[4] |= {"val-core/reasoning_gym/a/mean@1": 0.6, "val-core/b/mean@4": 0.9, "val-core/b/best@4/mean": 1.0}


def test_first_and_last_do_not_overlap() -> None:
    summary = summarize(STEPS)
    assert (summary.num_steps, summary.window) == (4, 2)
    assert summary.reward == Ends(first=pytest.approx(0.15), last=pytest.approx(0.35))
    assert summary.throughput == Ends(first=1500.0, last=3500.0)
    assert summary.length_p50 == Ends(first=11.5, last=13.5)
    assert summary.length_p90 == Ends(first=40.0, last=40.0)
    assert summary.length_max == Ends(first=59.0, last=57.0)


def test_a_long_run_averages_over_five_steps_at_either_end() -> None:
    summary = summarize({step: {"critic/score/mean": float(step)} for step in range(1, 31)})
    assert (summary.window, summary.reward) == (5, Ends(first=3.0, last=28.0))


def test_validation_is_the_first_and_the_last_by_source() -> None:
    summary = summarize(STEPS)
    assert summary.validation == {
        "reasoning_gym/a": Ends(first=0.1, last=0.6),
        "b": Ends(first=0.3, last=0.9),
    }
    assert summary.validation_mean == Ends(first=pytest.approx(0.2), last=pytest.approx(0.75))
    assert validation_series(STEPS) == pytest.approx({0: 0.2, 4: 0.75})


def test_seconds_by_stage_sum_to_the_steps_longest_first() -> None:
    summary = summarize(STEPS)
    assert list(summary.stage_seconds.items()) == [
        ("sft", 50.0),
        ("gen", 12.0),
        ("update_actor", 6.0),
        ("testing", 5.0),
        ("other", 5.0),
    ]
    assert summary.seconds == 60.0 + 4 * 4.5
    assert summary.peak_gib == 3.0


def test_what_was_never_logged_is_none_and_not_shown() -> None:
    summary = summarize({})
    assert (summary.num_steps, summary.reward, summary.seconds, summary.peak_gib) == (0, Ends(), None, None)
    assert summary.validation_mean == Ends()
    assert summary_rows(summary) == []


def test_rows_of_the_closing_table() -> None:
    summary = summarize(STEPS)
    assert summary_rows(summary) == [
        ("mean reward", "0.150", "0.350"),
        ("validation accuracy, reasoning_gym/a", "0.100", "0.600"),
        ("validation accuracy, b", "0.300", "0.900"),
        ("response length p50 / p90 / max", "12 / 40 / 59", "14 / 40 / 57"),
        ("tokens/s of generation", "1,500", "3,500"),
    ]
    assert stage_rows(summary)[0] == ("sft", "50.0", "64%")
    assert stage_rows(summary)[-1] == ("all", "78.0", "100%")
    assert summary_title(summary) == "4 steps (start and end: means of 2 steps; validation: first and last)"


def test_line_of_a_step() -> None:
    assert step_line(4, 40, STEPS[4]) == (
        "step  4/40 | reward 0.400 | val 0.750 | length 24.0 | tokens/s 4,000"
        " | 4.5 s (gen 3.0, update_actor 1.5)"
    )
    assert step_line(0, 40, {}) == "step  0/40"
