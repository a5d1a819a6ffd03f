"""Which parts of a checkpoint the tensors of a whole model are, by Megatron's own description.

It is asked of a model that takes no memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from megatron.core.dist_checkpointing.mapping import ShardedObject, ShardedTensor, ShardedTensorFactory

from flexfloor import parallel
from flexfloor.models.build import build_shell
from flexfloor.models.config import ModelConfig
from flexfloor.models.init import global_tensors
from flexfloor.models.weights.fusion import Shape, num_rows, row_width


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Rows of a tensor that lie together under a key of the checkpoint."""

    key: str
    size: tuple[int, ...]
    """Of all that lies under the key."""
    start: tuple[int, ...]
    num_rows: int
    """1 for a vector."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Rows of a tensor, few enough to be held, and where they belong under a key of the checkpoint."""

    name: str
    """Of the tensor, Megatron's."""
    row: int
    num_rows: int
    num_bytes: int
    key: str
    size: tuple[int, ...]
    """Of all that lies under the key."""
    start: tuple[int, ...]
    shape: tuple[int, ...]


class ModelParts:
    """The tensors of a whole model by global name; parallel state must be there, with nothing spread."""

    def __init__(self, model: ModelConfig, vocab_size: int) -> None:
        with torch.device("meta"):
            gpt = build_shell(model, vocab_size=vocab_size, max_sequence_length=1, groups=parallel.groups())
        described, tensors = gpt.sharded_state_dict(), global_tensors(gpt)
        self.num_layers: int = gpt.config.num_layers
        self.shapes: dict[str, Shape] = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        self.parts = {name: _parts(described[name]) for name in tensors}
        objects = [each for each in described.values() if isinstance(each, ShardedObject)]
        assert all(each.data is None for each in objects), [each.key for each in objects if each.data]
        self.objects = [each.unique_key for each in objects]
        """Keys under which a checkpoint has a None, for what layers could have beside tensors."""
        self.learned = {name for name, tensor in tensors.items() if isinstance(tensor, torch.nn.Parameter)}

    def chunks(self, name: str, itemsize: int, max_bytes: int) -> Iterator[Chunk]:
        """A tensor in pieces of at most `max_bytes`, a row at least; a vector is one piece."""
        shape, row = self.shapes[name], 0
        width = row_width(shape) if len(shape) > 1 else num_rows(shape)
        at_once = max(1, max_bytes // (width * itemsize))
        for part in self.parts[name]:
            for first in range(0, part.num_rows, at_once):
                count = min(at_once, part.num_rows - first)
                lead = part.start if len(shape) == 1 else (*part.start[:-2], part.start[-2] + first, 0)
                yield Chunk(
                    name=name,
                    row=row,
                    num_rows=num_rows(shape) if len(shape) == 1 else count,
                    num_bytes=count * width * itemsize,
                    key=part.key,
                    size=part.size,
                    start=lead,
                    shape=_padded(shape if len(shape) == 1 else (count, width), len(part.size)),
                )
                row += count


def _padded(shape: tuple[int, ...], num_dims: int) -> tuple[int, ...]:
    return (*[1] * (num_dims - len(shape)), *shape)


def _parts(described: ShardedTensor | ShardedTensorFactory) -> list[Part]:
    built = described.build() if isinstance(described, ShardedTensorFactory) else [described]
    return [
        Part(
            key=part.key,
            size=tuple(part.global_shape),
            start=tuple(part.global_offset),
            num_rows=part.local_shape[0] if len(part.local_shape) > 1 else 1,
        )
        for part in built
    ]
