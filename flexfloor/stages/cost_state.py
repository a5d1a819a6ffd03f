"""Measured costs as they are kept, with what they hold for: a model in its type, under an EP and a TP size.

Invariants:
- Costs that were measured under anything else are left aside, on every rank alike, and a warning says why.
- The same terms give back what was kept.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from flexfloor.config import Config
from flexfloor.parallel import Layout
from flexfloor.schedule.fitted_cost import FittedCost

logger = logging.getLogger(__name__)

UNDER = "under"
"""Key of the terms beside the measurements."""


def terms_of(config: Config, layout: Layout) -> dict[str, Any]:
    """What times of passes, shrinks and training hold for, by the settings' names; the same on every rank."""
    model = {f"model.{name}": value for name, value in config.model.identity().items()}
    return model | {"parallel.ep": layout.ep_size, "parallel.tp": layout.tp_size}


def kept_state(costs: FittedCost, terms: Mapping[str, Any]) -> dict[str, Any]:
    """Plain JSON data, for `usable_state`."""
    return costs.state() | {UNDER: dict(terms)}


def usable_state(kept: Mapping[str, Any], terms: Mapping[str, Any], *, tells: bool) -> dict[str, Any]:
    """What of `kept` holds under `terms`: all of it or nothing.

    Args:
        tells: whether this rank says so when there is nothing.
    """
    state = dict(kept)
    # Of before terms were kept there are none, and such costs can be of anything.
    under = state.pop(UNDER, {})
    differing = [name for name, here in terms.items() if under.get(name) != here]
    if not differing:
        return state
    if tells:
        logger.warning(
            "measured costs are left aside, and measured anew: %s", _reason(under, terms, differing[0])
        )
    return {}


def _reason(under: Mapping[str, Any], terms: Mapping[str, Any], name: str) -> str:
    if name not in under:
        return "the checkpoint does not say under which model and layout they were measured"
    return f"they were measured under {name}={under[name]}, and it is {terms[name]} here"
