"""How an expert group generates: what a schedule decides, as one value."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from flexfloor.simulate.admit import Admit
from flexfloor.simulate.replica import Replica
from flexfloor.simulate.slotted import SlottedReplica
from flexfloor.simulate.workload import Workload


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
    slots: tuple[int, ...] | None = None
    """Sizes of the slots that a cache has, ascending: it admits as the engine does, whatever `admit` and
    `most_joining` say. None = its tokens are counted."""

    def new_replica(self, work: Workload, queue: Iterable[int], room: int) -> Replica:
        """A rank with a queue and so many tokens of cache."""
        if self.slots is None:
            return Replica(work, queue, room=room, max_live=self.max_live, admit=self.admit)
        return SlottedReplica(work, queue, room=room, max_live=self.max_live, sizes=self.slots)
