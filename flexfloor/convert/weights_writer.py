"""A model's weights as those of a checkpoint, written as they are read; all ranks write, each its share.

The files are those of Torch's distributed checkpoints, as Megatron's are, which loads them under any layout.

Invariants:
- No rank holds more than one chunk.
- When `write_weights` returns, the files of all ranks are on the disk.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from megatron.core.dist_checkpointing.core import CheckpointingConfig, save_config
from torch import Tensor
from torch.distributed import checkpoint
from torch.distributed.checkpoint import FileSystemWriter, Metadata, SavePlan, SavePlanner
from torch.distributed.checkpoint.default_planner import create_default_global_save_plan
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorProperties
from torch.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType

from flexfloor.convert.model_parts import Chunk

_COMMON = "common.pt"
"""Where Megatron keeps what is no tensor."""


def write_weights(
    folder: Path,
    chunks: Sequence[Chunk],
    dtypes: Mapping[str, torch.dtype],
    read: Callable[[Chunk], Tensor],
    objects: Sequence[str],
) -> None:
    """Write into `folder`, which is there and empty; all ranks call it.

    Args:
        chunks: of this rank.
        dtypes: of each tensor by name.
        read: gives a chunk, in its tensor's type.
        objects: keys that hold None.

    Raises:
        CheckpointException: on every rank, with what went wrong on which.
    """
    writer = FileSystemWriter(folder, single_file_per_rank=True, sync_files=True, thread_count=1)
    checkpoint.save({}, storage_writer=writer, planner=_Streamed(chunks, dtypes, read, objects))
    if dist.get_rank() == 0:
        torch.save({}, folder / _COMMON)
        save_config(CheckpointingConfig("torch_dist", 1), str(folder))


class _Streamed(SavePlanner):
    """Plans chunks that are not there yet, and reads each when it is written."""

    def __init__(
        self,
        chunks: Sequence[Chunk],
        dtypes: Mapping[str, torch.dtype],
        read: Callable[[Chunk], Tensor],
        objects: Sequence[str],
    ) -> None:
        self._objects = objects if dist.get_rank() == 0 else ()
        self._chunks = {(chunk.key, chunk.start): chunk for chunk in chunks}
        self._dtypes, self._read = dtypes, read

    def set_up_planner(self, state_dict: Any, storage_meta: Any = None, is_coordinator: bool = False) -> None:
        """There is no state in memory to look at."""

    def create_local_plan(self) -> SavePlan:
        items = [_item(chunk, self._dtypes[chunk.name]) for chunk in self._chunks.values()]
        objects = [WriteItem(index=MetadataIndex(key), type=WriteItemType.BYTE_IO) for key in self._objects]
        return SavePlan(items + objects)

    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        return create_default_global_save_plan(all_plans)

    def finish_plan(self, new_plan: SavePlan) -> SavePlan:
        return new_plan

    def resolve_data(self, write_item: WriteItem) -> Tensor | io.BytesIO:
        if write_item.index.offset is None:
            return _none()
        chunk = self._chunks[write_item.index.fqn, tuple(write_item.index.offset)]
        return self._read(chunk).view(chunk.shape)


def _none() -> io.BytesIO:
    """None as Megatron writes an object: as what the only rank has that has it."""
    written = io.BytesIO()
    torch.save([None], written)
    return written


def _item(chunk: Chunk, dtype: torch.dtype) -> WriteItem:
    start = torch.Size(chunk.start)
    return WriteItem(
        index=MetadataIndex(chunk.key, start),
        type=WriteItemType.SHARD,
        tensor_data=TensorWriteData(
            chunk=ChunkStorageMetadata(offsets=start, sizes=torch.Size(chunk.shape)),
            properties=TensorProperties(dtype=dtype),
            size=torch.Size(chunk.size),
        ),
    )
