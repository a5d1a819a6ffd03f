"""A checkpoint's weights read rows at a time, without ranks and without any memory but that of the rows.

A checkpoint holds what each rank had, cut as its layout had it, under keys of Megatron's. Which key and which
part of it a tensor of the model is, the model says; here what was stored is found and read.

Invariants:
- What is read is what was saved, whatever layout saved it; what is not all there is an error.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint.metadata import MetadataIndex, TensorStorageMetadata

from flexfloor.errors import CheckpointError
from megatron_patches.stored_tensor import stored_tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chunk:
    """What one rank stored of a key."""

    start: tuple[int, ...]
    size: tuple[int, ...]
    stored_at: Any


class StoredWeights:
    """The tensors of one folder of a checkpoint."""

    def __init__(self, folder: Path) -> None:
        """Raises CheckpointError: nothing readable is there."""
        self._reader = FileSystemReader(folder)
        try:
            metadata = self._reader.read_metadata()
        except OSError as error:
            raise CheckpointError(f"cannot read {folder}: {error}") from error
        self._folder = folder
        self._tensors = {
            key: tensor
            for key, tensor in metadata.state_dict_metadata.items()
            if isinstance(tensor, TensorStorageMetadata)
        }
        self._chunks = {
            key: _by_leading(key, tensor, metadata.storage_data) for key, tensor in self._tensors.items()
        }

    def dtype(self, key: str) -> torch.dtype:
        """In which `key` is stored.

        Raises:
            CheckpointError: it is not stored.
        """
        if key not in self._tensors:
            raise CheckpointError(f"{self._folder} holds no {key}")
        return self._tensors[key].properties.dtype

    def read(self, key: str, start: Sequence[int], num_rows: int) -> Tensor:
        """[num_rows, width] of what is stored under `key`, along its last but one dimension.

        Args:
            start: where the first row is, in all dimensions; a vector is one row.

        Raises:
            CheckpointError: not all of it is stored.
        """
        dtype, width = self.dtype(key), self._tensors[key].size[-1]
        start = (0, *start) if len(start) == 1 else tuple(start)
        rows, done, wanted = torch.empty(num_rows, width, dtype=dtype), 0, start[-2]
        for chunk in self._chunks[key].get(start[:-2], ()):
            first = max(wanted, chunk.start[-2])
            last = min(wanted + num_rows, chunk.start[-2] + chunk.size[-2])
            if first < last:
                self._fill(rows[first - wanted : last - wanted], chunk, first - chunk.start[-2])
                done += (last - first) * chunk.size[-1]
        if done != rows.numel():
            raise CheckpointError(f"{self._folder}: {done} of {rows.numel()} numbers of {key} can be read")
        return rows

    def _fill(self, rows: Tensor, chunk: _Chunk, row: int) -> None:
        """Put what `chunk` has from its `row` on in its columns of `rows`."""
        if chunk.size[-1] == rows.size(1):
            self._read_into(rows, chunk, row)
            return
        part = rows.new_empty(rows.size(0), chunk.size[-1])
        self._read_into(part, chunk, row)
        rows[:, chunk.start[-1] : chunk.start[-1] + chunk.size[-1]] = part

    def _read_into(self, target: Tensor, chunk: _Chunk, row: int) -> None:
        path = self._folder / chunk.stored_at.relative_path
        with path.open("rb") as file:
            found = stored_tensor(self._reader._slice_file(file, chunk.stored_at))
            if found is None or found[0].dtype != target.dtype or not found[0].is_contiguous():
                raise CheckpointError(
                    f"{path}: what is stored at {chunk.stored_at.offset} is no plain tensor"
                )
            tensor, begin = found
            skipped = (tensor.storage_offset() + row * target.size(1)) * tensor.element_size()
            file.seek(chunk.stored_at.offset + begin + skipped)
            wanted = memoryview(target.view(-1).view(torch.uint8).numpy().data)
            if file.readinto(wanted) != len(wanted):
                raise OSError(errno.EIO, "the file is cut", str(path))


def _by_leading(key: str, tensor: TensorStorageMetadata, storage: Any) -> dict[tuple[int, ...], list[_Chunk]]:
    """Chunks by where they start in all dimensions but the last two; a vector is a matrix of one row."""
    found: dict[tuple[int, ...], list[_Chunk]] = {}
    for chunk in tensor.chunks:
        start, size = tuple(chunk.offsets), tuple(chunk.sizes)
        stored_at = storage[MetadataIndex(key, chunk.offsets)]
        if len(size) == 1:
            start, size = (0, *start), (1, *size)
        found.setdefault(start[:-2], []).append(_Chunk(start=start, size=size, stored_at=stored_at))
    return found
