"""The panels of `report.html` in a browser: their numbers are those of the run's folder."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from browsing import Reader, page_of
from made_run import make_run

from flexfloor.ledger.balance import state_seconds
from flexfloor.ledger.metrics import ledger_metrics, occupation
from flexfloor.ledger.store import read_ledger
from flexfloor.ledger.types import State
from flexfloor.track.lengths import read_lengths
from flexfloor.track.metrics import read_metrics

pytestmark = pytest.mark.browser


def test_the_table_is_the_ledger(page: Any, folder: Path) -> None:
    steps = read_ledger(folder / "ledger.jsonl")
    metrics = read_metrics(folder / "metrics.jsonl")
    rows = [row.locator("th, td").all_inner_texts() for row in page.locator("#ledger tbody tr").all()]
    assert [row[0] for row in rows] == [str(records[0].step) for records in steps]
    for records, row in zip(steps, rows, strict=True):
        tokens = int(metrics[records[0].step]["perf/response_tokens"])
        logged = ledger_metrics(records, tokens)
        assert [number(cell) for cell in row[1:]] == [
            round(records[0].seconds, 2),
            *(round(logged[f"ledger/{state}_seconds"], 2) for state in State),
            round(occupation(records).occupied_s, 2),
            round(100 * logged["rollout/occupied_fraction"], 1),
            round(100 * logged["rollout/idle_fraction"], 1),
            tokens,
            round(logged["rollout/tokens_per_occupied_second"], 1),
            round(logged["rollout/throughput"], 1),
        ]
    total = page.locator("#ledger tfoot th, #ledger tfoot td").all_inner_texts()
    assert total[0] == "all 12"
    held = sum(state_seconds(records)[State.GENERATING] for records in steps)
    occupied = sum(occupation(records).occupied_s for records in steps)
    tokens = sum(int(each["perf/response_tokens"]) for each in metrics.values())
    assert (number(total[2]), number(total[9])) == (round(held, 2), tokens)
    assert number(total[10]) == round(tokens / occupied, 1)


def number(cell: str) -> float:
    return float(cell.removesuffix(" %").replace(",", ""))


def test_lengths_of_a_step_and_of_all(page: Any, folder: Path) -> None:
    lengths = read_lengths(folder / "lengths.jsonl")
    assert page.inner_text("#histogram-title") == "Lengths of step 11"
    heights = "[...document.querySelectorAll('.bar-of-lengths')].map((bar) => +bar.getAttribute('height'))"
    last = page.evaluate(heights)
    page.focus("#step")
    page.keyboard.press("Home")
    assert page.inner_text("#histogram-title") == "Lengths of all steps"
    cut = sum(sum(each.truncated) for each in lengths.values())
    assert page.inner_text("#histogram-text").startswith(f"1,536 responses, {cut} of them truncated")
    assert page.evaluate(heights) != last
    page.click("#as-cdf")
    assert page.get_attribute("#as-cdf", "aria-pressed") == "true"
    assert page.locator(".bar-of-lengths").count() == 0
    box = page.locator("#histogram").bounding_box()
    page.mouse.move(box["x"] + box["width"] - 14, box["y"] + 60)
    told = page.locator("#histogram .hover p").all_inner_texts()
    assert told[0] == "up to 1,024 tokens"
    assert told[1] == "100.0 % of the responses"


def test_predictions_are_counted_and_told_as_text(page: Any, folder: Path) -> None:
    """Of 11 steps with predictions; the first one was made without."""
    held = {False: [], True: []}
    for each in read_lengths(folder / "lengths.jsonl").values():
        if each.predicted_p10 is not None:
            for low, tokens, high, cut in zip(
                each.predicted_p10, each.num_tokens, each.predicted_p90, each.truncated, strict=True
            ):
                held[cut].append(low <= tokens <= high)
    every, ended, cut = ([*held[False], *held[True]], held[False], held[True])
    all_share, ended_share, cut_share = (
        f"{100 * sum(each) / len(each):.1f} %" for each in (every, ended, cut)
    )
    assert len({all_share, ended_share, cut_share}) == 3, "numbers that can be told apart"
    assert page.inner_text("#coverage") == (
        f"The 80 % interval holds {all_share} of 1,408 responses ({ended_share} of those that ended by "
        f"themselves, {cut_share} of {len(cut)} truncated ones)."
    )
    dots = page.locator("#predicted circle")
    assert dots.count() == 1408
    dots.nth(700).scroll_into_view_if_needed()
    box = dots.nth(700).bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    told = page.locator("#predicted .hover p").all_inner_texts()
    assert re.fullmatch(r"response \d to </script><script>alert\(\d+\)</script>, step \d+", told[0])
    assert re.fullmatch(r"predicted [\d,]+, 80 % between [\d,]+ and [\d,]+", told[2])


def test_curves_tell_a_steps_values(page: Any, folder: Path) -> None:
    metrics = read_metrics(folder / "metrics.jsonl")
    page.locator("#rewards").scroll_into_view_if_needed()
    box = page.locator("#rewards").bounding_box()
    page.mouse.move(box["x"] + box["width"] - 14, box["y"] + 80)
    assert page.locator("#rewards .hover p").all_inner_texts() == [
        "step 11",
        f"mean reward: {metrics[11]['critic/score/mean']:.3f}",
    ]


def test_a_run_without_lengths_says_so(reader: Reader, tmp_path: Path) -> None:
    make_run(tmp_path, num_steps=1, num_ranks=1)
    (tmp_path / "lengths.jsonl").unlink()
    page = reader.open(page_of(tmp_path))
    assert "its folder has no lengths.jsonl" in page.inner_text("#lengths-notes")
    assert page.locator("#lengths").is_hidden()
