"""The store that ranks of a run leave messages in, in the memory of rank 0."""

from __future__ import annotations

from datetime import timedelta

import torch.distributed as dist
from torch.distributed.distributed_c10d import _get_default_store


def message_store(timeout_seconds: float) -> dist.Store:
    """The run's own store, or a new one where that is a file, which only ever grows; all ranks call it."""
    own = _get_default_store()
    inner = own
    while isinstance(inner, dist.PrefixStore):
        inner = inner.underlying_store
    if not isinstance(inner, dist.FileStore):
        return own
    # Ranks that meet through a file are on one machine.
    host, timeout = "localhost", timedelta(seconds=timeout_seconds)
    if dist.get_rank() == 0:
        store = dist.TCPStore(host, 0, is_master=True, wait_for_workers=False, timeout=timeout)
        dist.broadcast_object_list([store.port], src=0)
        return store
    port: list = [None]
    dist.broadcast_object_list(port, src=0)
    return dist.TCPStore(host, port[0], is_master=False, timeout=timeout)
