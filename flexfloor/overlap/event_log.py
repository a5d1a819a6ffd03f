"""What ranks tell each other in writing while no collective can join them: a log in the run's store.

A rank that writes waits for nobody to read, and one that reads waits for nobody to write. So a rank that
generates and one that trains never hold each other up.

Invariants:
- All readers see the same events in the same order, each once.
"""

from __future__ import annotations

import pickle
from typing import Any

import torch.distributed as dist


class EventLog:
    """One log, as one rank writes and reads it."""

    def __init__(self, store: dist.Store, name: str):
        """Args:
        name: of the log; the same on all of its ranks, and of no other log before.
        """
        self._store = dist.PrefixStore(name, store)
        self._next = 1
        """Number of the event that is read next."""
        self._written: list[str] = []

    def write(self, event: Any) -> None:
        """Add an event that can be pickled."""
        key = _key(self._store.add("count", 1))
        self._store.set(key, pickle.dumps(event))  # type: ignore[arg-type]
        self._written.append(key)

    def read(self) -> list[Any]:
        """The events that this rank has not read yet; none when there are none."""
        found = []
        # A number is given out before its event is written: what is behind a gap comes with the next reading.
        while self._store.check([_key(self._next)]):
            found.append(pickle.loads(self._store.get(_key(self._next))))
            self._next += 1
        return found

    def clear(self) -> None:
        """Take what this rank wrote out of the store; call it when everybody has read it."""
        for key in self._written:
            self._store.delete_key(key)
        self._written = []


def _key(number: int) -> str:
    return f"event/{number}"
