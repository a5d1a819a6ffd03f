"""A headless Chromium, and a made-up run to look at with it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browsing import Reader, page_of
from made_run import make_run


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Debian's Chromium, run by Playwright."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium")
    assert chromium, "these tests need Chromium: apt-get install chromium, or leave out -m browser"
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium)
        yield running
        running.close()


@pytest.fixture
def reader(browser: Any) -> Iterator[Reader]:
    """Opens pages; a request beside the page itself, or anything on its console, fails the test."""
    opened = Reader(browser)
    yield opened
    opened.close()
    assert [url for url in opened.requests if not url.startswith("data:")] == [
        url for url in opened.requests if url.startswith("file:") and url.endswith("report.html")
    ]
    assert opened.complaints == []


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 12 steps on 8 ranks, whose name and prompts look like markup."""
    folder = tmp_path_factory.mktemp("runs") / "<b>run & &lt;1"
    page_of(make_run(folder, num_steps=12, num_ranks=8, num_responses=128))
    return folder


@pytest.fixture
def page(reader: Reader, folder: Path) -> Any:
    """The page of that run, in a wide window."""
    return reader.open(folder / "report.html")
