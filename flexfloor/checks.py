"""Checks that configs make on their own fields, so that every complaint reads the same.

Invariants:
- A complaint names the field by its full dotted name, the value found and what is allowed.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

from flexfloor.errors import ConfigError


def require(condition: bool, field: str, value: Any, allowed: str) -> None:
    """Raise `ConfigError` "field = value: must be allowed" unless `condition` holds."""
    if not condition:
        raise ConfigError(f"{field} = {shown(value)}: must be {allowed}")


def shown(value: Any) -> str:
    """`value` as a user writes it in YAML or on the command line."""
    words = {None: "null", True: "true", False: "false"}
    return words[value] if value is None or isinstance(value, bool) else repr(value)


def require_choice(field: str, value: Any, choices: Collection[str]) -> None:
    """Raise `ConfigError` unless `value` is one of `choices`."""
    require(value in choices, field, value, "one of " + ", ".join(choices))


def require_range(
    field: str,
    value: float,
    low: float = -math.inf,
    high: float = math.inf,
    *,
    above: float = -math.inf,
    below: float = math.inf,
) -> None:
    """Raise `ConfigError` unless low <= value <= high and above < value < below; NaN and infinity fail."""
    bounds = [f">= {low}"] if low > -math.inf else []
    bounds += [f"> {above}"] if above > -math.inf else []
    bounds += [f"<= {high}"] if high < math.inf else []
    bounds += [f"< {below}"] if below < math.inf else []
    require(math.isfinite(value), field, value, "a finite number")
    inside = low <= value <= high and above < value < below
    require(inside, field, value, " and ".join(bounds))
