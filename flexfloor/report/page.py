"""The page itself: one HTML file that holds its data, style and script, and asks for nothing else.

Invariants:
- no byte of the data can end the script element that holds it, or be read as markup;
- the page forbids itself every request (Content-Security-Policy);
- the same data give the same bytes.
"""

from __future__ import annotations

import html
import importlib.resources
import json
from dataclasses import fields, is_dataclass
from string import Template
from typing import Any

from flexfloor.report.colours import colour_style
from flexfloor.report.data import Page

SCRIPTS = (
    "dom.js",
    "rows.js",
    "view.js",
    "draw.js",
    "overview.js",
    "tell.js",
    "timeline.js",
    "chart.js",
    "lengths.js",
    "predicted.js",
    "curves.js",
    "table.js",
    "page.js",
)
"""In the order in which they stand in the page; together they are one module."""


def render(page: Page) -> str:
    """The page as HTML."""
    return Template(_asset("page.html")).substitute(
        title=html.escape(f"{page.run} - FlexFloor"),
        style=colour_style() + _asset("page.css"),
        script="\n".join(_asset(name) for name in SCRIPTS),
        data=embedded(page),
    )


def embedded(data: Any) -> str:
    """Data as JSON that may stand in a script element of any type.

    Raises:
        ValueError: a number is not finite.
    """
    text = json.dumps(data, default=_columns, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _columns(value: Any) -> dict[str, Any]:
    """A dataclass as an object; its properties are left to the page."""
    if not is_dataclass(value):
        raise TypeError(f"{type(value).__name__} has no JSON")
    return {field.name: getattr(value, field.name) for field in fields(value)}


def _asset(name: str) -> str:
    return (importlib.resources.files("flexfloor.report") / "web" / name).read_text(encoding="utf-8")
