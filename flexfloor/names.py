"""Suggestions for a name that does not exist."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str], *, limit: int = 3) -> list[str]:
    """The known names most like `name`, best first, or none; case and `-` or `_` do not count."""
    by_plain: dict[str, str] = {}
    for candidate in known:
        by_plain.setdefault(_plain(candidate), candidate)
    close = difflib.get_close_matches(_plain(name), by_plain, n=limit, cutoff=0.6)
    return [by_plain[plain] for plain in close]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a message: "did you mean x?" when a known name is near, else all of the known names."""
    known = sorted(known)
    close = nearest(name, known)
    return f"did you mean {' or '.join(close)}?" if close else f"there is {', '.join(known) or 'none'}"


def _plain(name: str) -> str:
    return name.lower().replace("_", "-")
