"""Pages as a reader opens them, in a headless Chromium whose network is off."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from flexfloor.ledger.store import read_ledger
from flexfloor.report.write import write_page
from flexfloor.track.metrics import read_metrics

GUTTER, HEAD, ROW = 52, 38, 24
"""Pixels left of the time line, above its rows, and of a row of eight."""
STEP_S = 11.5
"""From the start of one made-up step to the next."""

SCREENSHOTS = Path(__file__).parents[2] / "build" / "browser"


class Reader:
    """Opens pages from files, and notes whatever should not happen on one."""

    def __init__(self, browser: Any) -> None:
        self._browser = browser
        self.requests: list[str] = []
        self.complaints: list[str] = []

    def open(self, path: Path, width: int = 1280, **options: Any) -> Any:
        """The page at `path`, drawn, in a window of its own."""
        context = self._browser.new_context(viewport={"width": width, "height": 900}, offline=True, **options)
        page = context.new_page()
        page.set_default_timeout(30_000)
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: (self.complaints.append(dialog.message), dialog.dismiss()))
        page.goto(path.resolve().as_uri())
        settle(page)
        return page

    def close(self) -> None:
        """Close all windows."""
        for context in self._browser.contexts:
            context.close()


def settle(page: Any) -> None:
    """Wait until what was asked for is drawn."""
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def keep_screenshot(page: Any, name: str) -> Path:
    """Write a picture of the whole page to build/browser, to be looked at."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    path = SCREENSHOTS / f"{name}.png"
    page.screenshot(path=path, full_page=True)
    return path


def page_of(folder: Path) -> Path:
    """Write the page of the run in `folder`."""
    return write_page(folder, read_ledger(folder / "ledger.jsonl"), read_metrics(folder / "metrics.jsonl"))


def visible(page: Any) -> tuple[float, float]:
    """Seconds at which the visible part of the time line begins and ends."""
    settle(page)
    found = re.match(r"Visible: ([\d.,]+) to ([\d.,]+) s", page.inner_text("#visible"))
    assert found
    low, high = (float(each.replace(",", "")) for each in found.groups())
    return low, high


def place(page: Any, rank: float, seconds: float) -> tuple[float, float]:
    """Pixels in the window of a moment of a rank; the time line is scrolled into sight."""
    page.locator("#rows").scroll_into_view_if_needed()
    low, high = visible(page)
    box = page.locator("#rows").bounding_box()
    x = GUTTER + (seconds - low) / (high - low) * (box["width"] - GUTTER)
    return box["x"] + x, box["y"] + HEAD + (rank + 0.5) * ROW


def hover(page: Any, rank: float, seconds: float) -> list[str]:
    """What is told of a moment of a rank."""
    page.mouse.move(*place(page, rank, seconds))
    settle(page)
    return page.locator("#hover p").all_inner_texts()


def colour_at(page: Any, rank: int, seconds: float) -> str:
    """The colour of a moment of a rank, from a copy so that the page's canvas stays what it is."""
    x, y = place(page, rank, seconds)
    box = page.locator("#rows").bounding_box()
    pixel = page.evaluate(
        """([x, y]) => {
            const copy = new OffscreenCanvas(1, 1).getContext("2d");
            copy.drawImage(document.getElementById("rows"), -x, -y);
            return [...copy.getImageData(0, 0, 1, 1).data];
        }""",
        [round(x - box["x"]), round(y - box["y"])],
    )
    return "#{:02X}{:02X}{:02X}".format(*pixel[:3])
