"""A checkpoint's tensors read from their files into the memory that they are to fill, with none in between.

Torch's reader unpacks each stored tensor into a new one and copies that to its place: three passes over
memory, the first over pages that the system has to hand out. Here only the description of a stored tensor is
unpacked. It says where in the file the bytes lie, and they are read to their place.

Invariants:
- A tensor is filled with what Torch's reader would fill it with, bit by bit.
- What does not lie in one piece, or has another type or device than its place, is left to Torch's reader.
"""

from __future__ import annotations

import dataclasses
import errno
import functools
from typing import Any

import torch
from torch.distributed._shard._utils import narrow_tensor_by_index
from torch.distributed.checkpoint import FileSystemReader, LoadPlan, LoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystem
from torch.distributed.checkpoint.planner import LoadItemType, ReadItem
from torch.futures import Future

from megatron_patches.stored_tensor import stored_tensor


def in_place(reader: FileSystemReader) -> FileSystemReader:
    """`reader`, made to read in place where its files are local ones."""
    if type(getattr(reader, "fs", None)) is FileSystem:
        read_data = functools.partial(_read_data, reader, reader.read_data)
        reader.read_data = read_data  # type: ignore[method-assign]
    return reader


def _read_data(
    reader: FileSystemReader, read_data: Any, plan: LoadPlan, planner: LoadPlanner
) -> Future[None]:
    by_file: dict[str, list[ReadItem]] = {}
    for item in plan.items:
        by_file.setdefault(reader.storage_data[item.storage_index].relative_path, []).append(item)
    left: list[ReadItem] = []
    for name, items in by_file.items():
        with reader.fs.create_stream(reader.fs.concat_path(reader.path, name), "rb") as file:
            left += [item for item in items if not _is_filled(reader, file, item, planner)]
    return read_data(dataclasses.replace(plan, items=left), planner)


def _is_filled(reader: FileSystemReader, file: Any, item: ReadItem, planner: LoadPlanner) -> bool:
    """Whether `item` could be read in place, and has been."""
    stored_at = reader.storage_data[item.storage_index]
    if item.type is LoadItemType.BYTE_IO or stored_at.transform_descriptors:
        return False
    target = planner.resolve_tensor(item).detach()
    if not _is_one_piece_of_host(target):
        return False
    if (found := stored_tensor(reader._slice_file(file, stored_at))) is None:
        return False
    part = narrow_tensor_by_index(found[0], item.storage_offsets, item.lengths)
    if (part.dtype, part.size()) != (target.dtype, target.size()) or not part.is_contiguous():
        return False
    file.seek(stored_at.offset + found[1] + part.storage_offset() * part.element_size())
    _fill(target, file)
    planner.commit_tensor(item, target)
    return True


def _is_one_piece_of_host(tensor: torch.Tensor) -> bool:
    return type(tensor) is torch.Tensor and tensor.device.type == "cpu" and tensor.is_contiguous()


def _fill(target: torch.Tensor, file: Any) -> None:
    """Read the bytes of `target` from where `file` stands; one read of the system may give fewer."""
    left = memoryview(target.view(-1).view(torch.uint8).numpy().data)
    while left:
        count = file.readinto(left)
        if not count:
            raise OSError(errno.EIO, f"{len(left)} bytes are missing at the end", file.name)
        left = left[count:]
