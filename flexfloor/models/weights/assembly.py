"""Which rows of the model's tensors make which tensors of Hugging Face, and which file each is written to.

Invariants:
- A tensor to be written is made of all of its rows, each once.
- Every rank, and a process without ranks, plans the same files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from flexfloor.models.weights.fusion import Piece, Place, Shape, Vocabulary, num_rows
from flexfloor.models.weights.stored import ONE_FILE
from flexfloor.models.weights.weight_map import WeightMap

MAX_SHARD_BYTES = 5 * 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembly:
    """A tensor to be written."""

    name: str
    """Hugging Face's."""
    shape: Shape
    dtype: torch.dtype
    sources: tuple[tuple[str, Piece], ...]
    """Megatron's names and what is taken of each, in the order of rows."""

    @property
    def num_bytes(self) -> int:
        """Bytes in the file."""
        return torch.Size(self.shape).numel() * self.dtype.itemsize


@dataclass(slots=True, kw_only=True)
class Shard:
    """A file to be written."""

    owner: int
    """Rank that writes it."""
    tensors: list[Assembly] = field(default_factory=list)
    file: str = ""

    @property
    def num_bytes(self) -> int:
        """Bytes of its tensors."""
        return sum(tensor.num_bytes for tensor in self.tensors)


def assemble(
    weight_map: WeightMap,
    shapes: Mapping[str, Shape],
    dtypes: Mapping[str, torch.dtype],
    *,
    vocab_size: int,
    fused_experts: bool = False,
) -> list[Assembly]:
    """What is written of a whole model.

    Args:
        shapes: of all tensors of Megatron's model by global name.
        dtypes: in which they are written.
        vocab_size: rows that belong to tokens.
        fused_experts: the experts of a layer in one tensor.
    """
    found: dict[str, list[tuple[str, Piece]]] = {}
    for name, shape in shapes.items():
        row, place = weight_map.row_of(name)
        fusion = row.fused if fused_experts and row.fused is not None else row.hf
        if isinstance(fusion, Vocabulary):
            place = Place(vocab_size=vocab_size)
        for piece in fusion.pieces(shape, place):
            found.setdefault(piece.hf, []).append((name, piece))
    return [_assembly(name, sources, dtypes) for name, sources in found.items()]


def _assembly(name: str, sources: list[tuple[str, Piece]], dtypes: Mapping[str, torch.dtype]) -> Assembly:
    sources.sort(key=lambda source: source[1].hf_row)
    shape, row = sources[0][1].hf_shape, 0
    for _, piece in sources:
        assert (piece.hf_row, piece.hf_shape) == (row, shape), (name, piece, row)
        row += piece.num_rows
    assert row == num_rows(shape), f"{row} of {num_rows(shape)} rows of {name} are described"
    return Assembly(name=name, shape=shape, dtype=dtypes[sources[0][0]], sources=tuple(sources))


def shard(
    assemblies: Iterable[Assembly], owner_of: Callable[[Assembly], int], max_bytes: int = MAX_SHARD_BYTES
) -> list[Shard]:
    """Files of at most `max_bytes`, unless a single tensor is larger, each of one owner."""
    shards: list[Shard] = []
    open_of: dict[int, Shard] = {}
    for tensor in assemblies:
        owner = owner_of(tensor)
        current = open_of.get(owner)
        if current is None or current.num_bytes + tensor.num_bytes > max_bytes:
            current = open_of[owner] = Shard(owner=owner)
            shards.append(current)
        current.tensors.append(tensor)
    return _named(shards)


def _named(shards: Sequence[Shard]) -> list[Shard]:
    for number, each in enumerate(shards, start=1):
        single = len(shards) == 1
        each.file = ONE_FILE if single else f"model-{number:05d}-of-{len(shards):05d}.safetensors"
    return list(shards)
