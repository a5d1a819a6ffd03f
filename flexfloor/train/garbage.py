"""Python's garbage collector, put off while many objects are made of which none is garbage.

A full collection walks all that the imported libraries hold. That takes as long as reading hundreds of
megabytes, and the objects of a load's plans set it off.

Invariants:
- The collector is afterwards what it was before, also when the block fails.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """No collection in the block or in the function so decorated; reference counting frees as ever."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
