"""What `dist_checkpointing` reads a checkpoint with: see `in_place_reader`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from megatron_patches.patch import Patch


def _reads_in_place(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def get_filesystem_reader(*args: Any, **kwargs: Any) -> Any:
        from megatron_patches.in_place_reader import in_place

        return in_place(original(*args, **kwargs))

    return get_filesystem_reader


PATCHES = (
    Patch(
        target="megatron.core.dist_checkpointing.strategies.torch:_get_filesystem_reader",
        why="unpacks each stored tensor into a new one and copies that to its place",
        remove_when="a load fills tensors of the host from the file, or takes a reader of the caller's",
        wrap=_reads_in_place,
        upstream_sha={"0.16.1": "dde7021dc256", "0.19.2": "c2eec82e40c6"},
    ),
)
