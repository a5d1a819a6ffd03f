"""Checkpoint files written by the rank itself, in threads, instead of by processes that it forks.

A rank holds threads (gloo or NCCL, autograd, the intra-op pool) that a forked child inherits in whatever
state they are in; and when a forked writer is killed, upstream waits for its token for ever. A file that
cannot be written is an error where it is written.
"""

from __future__ import annotations

import queue
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from megatron_patches.patch import Kind, Patch

_MODULE = "megatron.core.dist_checkpointing.strategies.filesystem_async"


class _DoneQueue(queue.Queue):
    """Upstream's writer takes a token off this queue when it is done; here there are none to take."""

    def get(self, block: bool = True, timeout: float | None = None) -> None:
        return None

    def task_done(self) -> None:
        return None


def _write_in_threads(
    transform_list: list[Any], use_msc: bool, rank: int, write_buckets: list[Any], global_results_queue: Any
) -> None:
    from megatron.core.dist_checkpointing.strategies.filesystem_async import FileSystemWriterAsync

    results: queue.Queue = queue.Queue()

    def write(index: int) -> None:
        FileSystemWriterAsync.write_preloaded_data(
            transform_list, index, write_buckets[index], results, _DoneQueue(), True, use_msc=use_msc
        )

    with ThreadPoolExecutor(len(write_buckets)) as pool:
        list(pool.map(write, range(len(write_buckets))))
    by_bucket = dict(results.get_nowait() for _ in write_buckets)
    for result in by_bucket.values():
        if isinstance(result, Exception):
            raise result
    global_results_queue.put(by_bucket)


def _queue_in_process(_: Callable[[], Any]) -> Callable[[], Any]:
    results: queue.Queue = queue.Queue()
    return lambda: results


PATCHES = (
    Patch(
        target=f"{_MODULE}:FileSystemWriterAsync.write_preloaded_data_multiproc",
        why="forks writers out of a process with threads, and hangs for ever when one of them is killed",
        remove_when="a save that nobody asked to be asynchronous is written by the rank itself",
        wrap=lambda _: _write_in_threads,
        upstream_sha={"0.16.1": "bef05e8d525e"},
        kind=Kind.REPLACEMENT,
    ),
    Patch(
        target=f"{_MODULE}:FileSystemWriterAsync.write_preloaded_data_multithread",
        why="answers a file that cannot be written with an assertion about a type, and the reason is lost",
        remove_when="what a writer raises reaches the caller of the save",
        wrap=lambda _: _write_in_threads,
        upstream_sha={"0.19.2": "63c5718c16d4"},
        kind=Kind.REPLACEMENT,
    ),
    Patch(
        target=f"{_MODULE}:_get_write_results_queue",
        why="starts one more process, which imports everything anew, to carry the results of the writers",
        remove_when="a save that nobody asked to be asynchronous is written by the rank itself",
        wrap=_queue_in_process,
        upstream_sha={"0.16.1": "349269cbdd56"},
        kind=Kind.REPLACEMENT,
    ),
    Patch(
        target=f"{_MODULE}:get_write_results_queue",
        why="starts one more process, which imports everything anew, to carry the results of the writers",
        remove_when="a save that nobody asked to be asynchronous is written by the rank itself",
        wrap=_queue_in_process,
        upstream_sha={"0.19.2": "e395fb0e86a0"},
        kind=Kind.REPLACEMENT,
    ),
)
