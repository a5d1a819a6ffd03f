"""Checksums of a checkpoint's files: what they held when they were written, each counted by one rank.

A CRC-32 tells a flipped bit or a torn page from what was written. It is not a defence against forgery.

Invariants:
- Every file is counted by exactly one rank; that of a rank's own shards by that rank, which has it in memory.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch.distributed as dist

from flexfloor.errors import CheckpointError

_CHUNK_BYTES = 2**20
_FILES_AT_ONCE = 2
"""One is read while the other is counted; both let other threads run."""
_OF_RANK = re.compile(r"(?:__|rank_)(\d+)[_.]")


def sums_of_mine(path: Path, names: Iterable[str], *, sync: bool = False) -> dict[str, int]:
    """CRC-32 by name of those files below `path` that this rank counts.

    Args:
        sync: first see to it that what was written is on the disk.
    """
    rank, world_size = dist.get_rank(), dist.get_world_size()
    mine = [name for name in names if _counted_by(name, world_size) == rank]
    with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
        return dict(zip(mine, pool.map(lambda name: _crc(path / name, sync), mine), strict=True))


def gathered(sums: dict[str, int]) -> dict[str, int]:
    """The sums of all ranks; all ranks call it."""
    of_ranks: list[dict[str, int]] = [{}] * dist.get_world_size()
    dist.all_gather_object(of_ranks, sums)
    return {name: value for of_rank in of_ranks for name, value in sorted(of_rank.items())}


def require_sums(path: Path, expected: dict[str, int]) -> None:
    """Raise `CheckpointError` naming the first file below `path`, of those this rank counts, that changed."""
    for name, found in sums_of_mine(path, expected).items():
        if found != expected[name]:
            raise CheckpointError(
                f"{path / name} is corrupt: its checksum is {found:08x}, {expected[name]:08x} was written"
            )


def _counted_by(name: str, world_size: int) -> int:
    """A file that names no rank is rank 0's; ranks there are no more of are shared out."""
    match = _OF_RANK.match(Path(name).name)
    return int(match[1]) % world_size if match else 0


def _crc(path: Path, sync: bool) -> int:
    value, chunk = 0, memoryview(bytearray(_CHUNK_BYTES))
    with path.open("rb", buffering=0) as file:
        if sync:
            os.fsync(file.fileno())
        while count := file.readinto(chunk):
            value = zlib.crc32(chunk[:count], value)
    return value
