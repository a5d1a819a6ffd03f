"""How an expert group generates: what a schedule decides, as one value."""

from __future__ import annotations

from dataclasses import dataclass

from flexfloor.simulate.admit import Admit


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRules:
    """Of one expert group."""

    admit: Admit
    max_live: int
    """Sequences of a replica that may be live at once."""
    most_joining: int
    """Tokens of joining responses in one pass of a replica; one response may have more."""
    interval: int = 32
    """Passes from one exchange of numbers, and decision, to the next."""
    rebalances: bool = False
    """At an exchange a replica without a queue takes from the others' queues."""
