"""The time line of `report.html` in a browser: it shows the ledger, and can be moved about in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from browsing import (
    GUTTER,
    STEP_S,
    Reader,
    colour_at,
    hover,
    keep_screenshot,
    page_of,
    place,
    settle,
    visible,
)
from made_run import make_run

from flexfloor.ledger.palette import COLOUR, EARLY_COLOUR, EARLY_ON_DARK, ON_DARK
from flexfloor.ledger.store import read_ledger
from flexfloor.ledger.types import State

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_states_have_the_pictures_colours(reader: Reader, folder: Path, scheme: str) -> None:
    page = reader.open(folder / "report.html", color_scheme=scheme)
    colours = {"light": COLOUR, "dark": ON_DARK}[scheme]
    colours = {**colours, "early": {"light": EARLY_COLOUR, "dark": EARLY_ON_DARK}[scheme]}
    start = 10 * STEP_S
    for rank, at, state in (
        (0, 1.0, State.GENERATING),
        (7, 5.1, State.SHRINKING),
        (3, 8.1, State.WAITING),
        (7, 10.0, State.TRAINING),
        (7, 6.5, "early"),
        (7, 7.2, State.WAITING),
    ):
        assert colour_at(page, rank, start + at) == colours[state], (rank, at)
    keep_screenshot(page, f"report_{scheme}")


def test_the_name_is_text(page: Any) -> None:
    assert page.inner_text("h1") == "<b>run & &lt;1"
    assert page.title() == "<b>run & &lt;1 - FlexFloor"


def test_at_first_the_last_three_steps_are_seen(page: Any) -> None:
    assert visible(page) == (9 * STEP_S, 11 * STEP_S + 11.4)


def test_ways_to_zoom_and_pan(page: Any) -> None:
    total = 11 * STEP_S + 11.4
    page.click("#zoom-all")
    assert visible(page) == (0.0, total)
    page.click("#zoom-in")
    assert visible(page) == pytest.approx((total / 4, 3 * total / 4), abs=0.01)
    page.click("#zoom-out")
    assert visible(page) == (0.0, total)
    page.mouse.move(*place(page, 2, 50.0))
    page.keyboard.down("Control")
    page.mouse.wheel(0, -200)
    page.keyboard.up("Control")
    low, high = visible(page)
    assert high - low == pytest.approx(total / 2, abs=0.02)
    assert (50.0 - low) / (high - low) == pytest.approx(50.0 / total, abs=0.01), "the moment under it stays"
    x, y = place(page, 2, 50.0)
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x - 100, y)
    page.mouse.up()
    panned_low, panned_high = visible(page)
    width = page.locator("#rows").bounding_box()["width"] - GUTTER
    assert panned_high - panned_low == pytest.approx(high - low, abs=0.02)
    assert panned_low - low == pytest.approx(100 / width * (high - low), abs=0.02)


def test_a_wheel_alone_scrolls_the_page(page: Any) -> None:
    before = visible(page)
    page.mouse.move(*place(page, 2, 110.0))
    page.mouse.wheel(0, 300)
    for _ in range(200):
        if page.evaluate("scrollY") > 0:
            break
        page.wait_for_timeout(50)
    assert page.evaluate("scrollY") > 0
    assert visible(page) == before


def test_the_strip_chooses_a_part(page: Any) -> None:
    total = 11 * STEP_S + 11.4
    box = page.locator("#overview").bounding_box()
    left, width = box["x"] + GUTTER, box["width"] - GUTTER
    page.mouse.move(left + 0.25 * width, box["y"] + 10)
    page.mouse.down()
    page.mouse.move(left + 0.5 * width, box["y"] + 10)
    page.mouse.up()
    assert visible(page) == pytest.approx((total / 4, total / 2), abs=total / width)


def test_a_row_of_the_table_shows_its_step(page: Any) -> None:
    page.click("#ledger tbody button >> text='4'")
    assert visible(page) == (4 * STEP_S, 4 * STEP_S + 11.4)
    page.click("#step-on")
    assert visible(page) == (5 * STEP_S, 5 * STEP_S + 11.4)
    page.click("#step-back")
    assert visible(page) == (4 * STEP_S, 4 * STEP_S + 11.4)


def test_hover_tells_stage_state_seconds_and_the_idle_part(page: Any, folder: Path) -> None:
    record = read_ledger(folder / "ledger.jsonl")[10][6]
    idle = 5.0 - record.intervals[1].idle_from_s
    start = 10 * STEP_S
    told = [
        "rank 6, step 10",
        "rollout: generating",
        "4.99 s, from 0.01 to 5.00 s of the step",
        f"idle for {idle:.2f} s: own responses finished, experts still needed",
    ]
    assert hover(page, 6, start + 1.0) == told
    assert hover(page, 6, start + 4.95) == told
    assert hover(page, 6, start + 6.0)[1] == "rollout: released, the others still generate"
    assert hover(page, 2, start + 10.0)[1:] == [
        "update: training",
        "3.00 s, from 8.30 to 11.30 s of the step",
    ]
    assert hover(page, 10, start + 3.0)[0] == "8 of 8 ranks active"
    assert hover(page, 10, start + 7.0)[0] == "4 of 8 ranks active"
    page.mouse.move(5, 5)
    assert page.locator("#hover").is_hidden()


def test_keys_go_from_stretch_to_stretch(page: Any) -> None:
    page.click("#step-on")
    page.focus("#rows")
    first = "#hover p:first-child"
    for key, told in (
        ("ArrowRight", "rank 0, step 11"),
        ("ArrowDown", "rank 1, step 11"),
        ("ArrowUp", "rank 0, step 11"),
        ("ArrowLeft", "rank 0, step 10"),
    ):
        page.keyboard.press(key)
        settle(page)
        assert page.inner_text(first) == told, key
    page.keyboard.press("Escape")
    assert page.locator("#hover").is_hidden()
    page.keyboard.press("0")
    low, high = visible(page)
    page.keyboard.press("+")
    page.keyboard.press("Shift+ArrowRight")
    zoomed_low, zoomed_high = visible(page)
    assert zoomed_high - zoomed_low == pytest.approx((high - low) / 2, abs=0.02)
    assert zoomed_low == pytest.approx((high - low) * (0.25 + 0.1), abs=0.02)


@pytest.mark.parametrize("width", [360, 820])
def test_nothing_is_wider_than_a_small_screen(reader: Reader, folder: Path, width: int) -> None:
    page = reader.open(folder / "report.html", width, has_touch=True, device_scale_factor=2)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    x, y = place(page, 6, 10 * STEP_S + 1.0)
    page.touchscreen.tap(x, y)
    settle(page)
    assert page.inner_text("#hover p:first-child") == "rank 6, step 10"
    keep_screenshot(page, f"report_{width}")


def test_a_large_run_stays_usable(reader: Reader, tmp_path: Path) -> None:
    """1,000 steps on 64 ranks have 480,000 stretches; the page holds a part of them and says which."""
    path = page_of(make_run(tmp_path, num_steps=1000, num_ranks=64, num_responses=8))
    assert path.stat().st_size < 6e6
    page = reader.open(path)
    assert "are thinned" in page.inner_text("#timeline-notes")
    page.click("#zoom-all")
    assert visible(page) == (0.0, 999 * STEP_S + 11.4)
    page.click("#zoom-in")
    assert visible(page)[1] - visible(page)[0] == pytest.approx(999 * STEP_S / 2, rel=0.01)
    page.click("#ledger tbody button >> text='3'")
    x, y = place(page, 0, 3 * STEP_S + 1.0)
    page.mouse.move(x, y)
    settle(page)
    told = page.locator("#hover p").all_inner_texts()
    assert told == [
        told[0],
        "mostly generating (rollout)",
        "thinned: the exact times are not in this page",
    ]
    assert page.locator("#ledger tbody tr").count() == 1000
    keep_screenshot(page, "report_large")
