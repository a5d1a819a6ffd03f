"""Write what the ranks hold of a model in shards, through Megatron's `dist_checkpointing`.

Upstream plans together, writes apart and seals together. Here the ranks meet after the writing, so that one
that cannot write its files tells the others, which would wait for it where the checkpoint is sealed.

Invariants:
- When `write_shards` returns, the files of all ranks are on the disk.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from megatron.core import dist_checkpointing
from megatron.core.dist_checkpointing.strategies.async_utils import AsyncRequest
from megatron.core.dist_checkpointing.strategies.torch import TorchDistSaveShardedStrategy

from flexfloor.train.shared_failure import at_once, on_every_rank


def write_shards(state: dict[str, Any], folder: Path, complaint: str) -> None:
    """Write `state` to `folder`, which is empty; all ranks call it.

    Raises:
        CheckpointError: starts with `complaint` and names the rank that cannot write: on every rank, or
            on that one alone where the others already wait for it.
    """
    with at_once(complaint):
        dist_checkpointing.save(state, str(folder), _MeetAfterWriting(complaint))


class _MeetAfterWriting(TorchDistSaveShardedStrategy):
    """Upstream's strategy, whose request to write is carried out by `_write_and_seal`."""

    def __init__(self, complaint: str) -> None:
        super().__init__("torch_dist", 1)
        self._complaint = complaint

    def async_save(self, *args: Any, **kwargs: Any) -> Any:
        request = super().async_save(*args, **kwargs)
        return _Executed(lambda: _write_and_seal(request, self._complaint))


class _Executed:
    """What upstream's synchronous save does with a request: execute it."""

    def __init__(self, execute: Callable[[], None]) -> None:
        self.execute_sync = execute


def _write_and_seal(request: AsyncRequest, complaint: str) -> None:
    on_every_rank(lambda: _write(request), complaint)
    for seal in request.finalize_fns:
        seal()


def _write(request: AsyncRequest) -> None:
    if request.async_fn is None:
        return  # this rank's shards are all replicas of others
    rank, buckets, results = request.async_fn_args
    staged = buckets if request.preload_fn is None else request.preload_fn()
    request.async_fn(rank, staged, results, **request.async_fn_kwargs)
