"""One file of safetensors, written as its rows come.

Invariants:
- No more of a tensor is held than one piece of it, at most `CHUNK_BYTES`.
- When `write_shard` returns, the file is on the disk.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import torch
from torch import Tensor

from flexfloor.models.weights.assembly import Assembly, Shard
from flexfloor.models.weights.fusion import row_width
from flexfloor.models.weights.stored import DTYPES

CHUNK_BYTES = 16 * 2**20
Rows = Callable[[str, int, int], Tensor]
"""Megatron's name, first row and number of rows to those rows, [rows, width]."""
_NAMES = {dtype: name for name, dtype in DTYPES.items()}


def write_shard(folder: Path, shard: Shard, chunks: Iterable[Tensor]) -> None:
    """Write `shard`, whose tensors are the bytes in `chunks` one after the other, into `folder`."""
    with (folder / shard.file).open("wb", buffering=0) as file:
        file.write(_header(shard))
        for chunk in chunks:
            file.write(memoryview(chunk.numpy().data))
        os.fsync(file.fileno())


def chunks_of(
    shard: Shard, rows_of: Rows, on_tensor: Callable[[Assembly], None] = lambda _: None
) -> Iterator[Tensor]:
    """The bytes of the tensors of `shard`, in order.

    Args:
        rows_of: where the weights come from.
        on_tensor: called after each tensor.
    """
    for tensor in shard.tensors:
        yield from _chunks(tensor, rows_of)
        on_tensor(tensor)


def _header(shard: Shard) -> bytes:
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for tensor in shard.tensors:
        offsets = [end, end := end + tensor.num_bytes]
        entries[tensor.name] = {
            "dtype": _NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": offsets,
        }
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # so that the data begins at a multiple of 8
    return len(text).to_bytes(8, "little") + text


def _chunks(tensor: Assembly, rows_of: Rows) -> Iterator[Tensor]:
    """The tensor's bytes, in order."""
    at_once = max(1, CHUNK_BYTES // (row_width(tensor.shape) * tensor.dtype.itemsize))
    for name, piece in tensor.sources:
        for first in range(0, piece.num_rows, at_once):
            rows = rows_of(name, piece.row + first, min(at_once, piece.num_rows - first))
            flat = rows.detach().to(device="cpu", dtype=tensor.dtype).contiguous().view(-1)
            yield flat.view(torch.uint8)
