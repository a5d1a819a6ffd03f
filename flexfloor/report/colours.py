"""The picture's colours as CSS variables, for a light and for a dark ground."""

from __future__ import annotations

from collections.abc import Mapping

from flexfloor.ledger.palette import (
    COLOUR,
    EARLY_COLOUR,
    EARLY_ON_DARK,
    FAINT_INK,
    IDLE_COLOUR,
    IDLE_ON_DARK,
    INK,
    ON_DARK,
    P50_COLOUR,
    P90_COLOUR,
    VALIDATION_COLOUR,
)

CURVES = {"p50": P50_COLOUR, "p90": P90_COLOUR, "validation": VALIDATION_COLOUR}

LIGHT = {
    **COLOUR,
    **CURVES,
    "idle": IDLE_COLOUR,
    "early": EARLY_COLOUR,
    "ink": INK,
    "faint": FAINT_INK,
    "dots": "#AAAAAA",
    "ground": "#FFFFFF",
    "panel": "#F6F7F8",
    "line": "#D9DCDF",
}
DARK = {
    **ON_DARK,
    **CURVES,
    "p50": "#56B4E9",
    "idle": IDLE_ON_DARK,
    "early": EARLY_ON_DARK,
    "ink": "#E8EAEC",
    "faint": "#A3A9B0",
    "dots": "#6B727A",
    "ground": "#121518",
    "panel": "#1B1F23",
    "line": "#343A40",
}


def colour_style() -> str:
    """Style rules that set every variable, in the scheme that the reader's system asks for."""
    light, dark = _variables(LIGHT), _variables(DARK)
    return f":root {{ {light} }}\n@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"


def _variables(colours: Mapping[str, str]) -> str:
    return " ".join(f"--{name}: {colour};" for name, colour in colours.items())
