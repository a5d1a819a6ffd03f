"""Waiting for ranks that are still generating, by the store and not in a collective.

A rank that was released early may wait longer than any collective's time-out: the others generate for as
long as they need. Whether they still make progress, and whether they are there at all, is for the watch over
all ranks to say: a store, unlike a collective, does not fail when a rank is gone.
"""

from __future__ import annotations

import itertools
import time

import torch.distributed as dist
from torch.distributed.distributed_c10d import _get_default_store

from flexfloor import heartbeat

_meetings = itertools.count()
"""Numbers the meetings of this process, the same on every rank."""
LOOK_AGAIN_SECONDS = 0.01


def meet() -> None:
    """Return when every rank has called; all ranks call it equally often.

    Raises ConnectionError when a rank that is waited for is known to be gone.
    """
    store, name = _get_default_store(), f"flexfloor/meeting/{next(_meetings)}"
    if store.add(f"{name}/arrived", 1) == dist.get_world_size():
        store.set(f"{name}/all", "here")
    with heartbeat.waiting():
        while not store.check([f"{name}/all"]):
            heartbeat.check_peers()
            time.sleep(LOOK_AGAIN_SECONDS)
