"""How the picture shows the ledger's states: colours that stay apart for colour-blind eyes and in grey.

The hues are Okabe and Ito's. What is idle keeps its state's hue, light, hatched; a released rank is dotted.
Early training has the hue of training, darker, and lighter on a dark ground.
"""

from __future__ import annotations

from typing import Any

from flexfloor.ledger.types import State

COLOUR: dict[State, str] = {
    State.GENERATING: "#0072B2",
    State.SHRINKING: "#D55E00",
    State.TRAINING: "#56B99A",
    State.WAITING: "#DDDDDD",
}
"""Fill of each state's intervals."""

IDLE_COLOUR = "#CFE3F1"
"""Fill of the idle part of a generating interval; its hatch has the colour of generating."""

ON_DARK: dict[State, str] = {**COLOUR, State.WAITING: "#474D54"}
"""Fill of each state's intervals on a dark ground, where light grey would outshine all others."""

IDLE_ON_DARK = "#12374F"
"""Fill of the idle part on a dark ground."""

EARLY_COLOUR = "#00664B"
"""Fill of training in a lease."""

EARLY_ON_DARK = "#B5EBD6"
"""Fill of training in a lease on a dark ground."""

EARLY_MEANING = "training early"

IDLE_LOOK: dict[str, Any] = {
    "facecolor": IDLE_COLOUR,
    "edgecolor": COLOUR[State.GENERATING],
    "hatch": "/////",
    "linewidth": 0,
}

IDLE_MEANING = "own responses finished, experts still needed"

RELEASED_LOOK: dict[str, Any] = {
    "facecolor": "white",
    "edgecolor": "#AAAAAA",
    "hatch": "....",
    "linewidth": 0,
}
"""Of a rank that has left a generation which goes on without it."""

RELEASED_MEANING = "released"

SHRINK_LOOK: dict[str, Any] = {
    "facecolor": COLOUR[State.SHRINKING],
    "edgecolor": COLOUR[State.SHRINKING],
    "linewidth": 0.9,
}
"""Of a shrink; it may take less time than a pixel shows, and its edge does not."""

INK = "#222222"
"""Text and axes."""

FAINT_INK = "#666666"
"""Boundaries and what is said in passing."""

P50_COLOUR, P90_COLOUR = COLOUR[State.GENERATING], "#E69F00"
"""Curves of response lengths."""

VALIDATION_COLOUR = "#CC79A7"
"""Curve of validation accuracy; the reward's has the colour of ink."""
