"""How one tensor of Megatron is made of tensors of Hugging Face: which rows of it are which rows of theirs.

A row is everything along the last dimension, dimensions before it flattened; of a vector it is one element.
Rows lie in one piece in a file and in memory, and every fusion that occurs is one of whole rows. So a list of
pieces says all there is to say, in both directions.

Names are patterns: `{layer}` and `{expert}` stand for the numbers of the tensor at hand.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Which of the tensors of a pattern is meant."""

    layer: int | None = None
    expert: int | None = None
    """Of the whole model, not of a rank."""
    vocab_size: int | None = None
    """Rows of Hugging Face's embedding; None = as many as Megatron's."""

    def named(self, pattern: str) -> str:
        """`pattern` with this place's numbers in it."""
        return pattern.format(layer=self.layer, expert=self.expert)


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Rows of a Hugging Face tensor that are rows of a Megatron tensor."""

    hf: str
    """Name of the Hugging Face tensor."""
    hf_shape: Shape
    """Of the whole Hugging Face tensor."""
    hf_row: int
    """First row there."""
    row: int
    """First row in the Megatron tensor."""
    num_rows: int
    column: int = 0
    """First column there; as many are taken as the rank holds, all unless tensor parallelism cuts them."""


class Fusion(Protocol):
    """A way to make a Megatron tensor."""

    def pieces(self, shape: Shape, place: Place) -> list[Piece]:
        """The pieces of the Megatron tensor of `shape` at `place`, in the order of its rows."""
        ...


def num_rows(shape: Shape) -> int:
    """Rows of a tensor of `shape`."""
    return math.prod(shape[:-1]) if len(shape) > 1 else math.prod(shape)


def row_width(shape: Shape) -> int:
    """Elements of one row."""
    return shape[-1] if len(shape) > 1 else 1


@dataclass(frozen=True, slots=True)
class Plain:
    """The same tensor under another name."""

    hf: str

    def pieces(self, shape: Shape, place: Place) -> list[Piece]:
        """All rows at once."""
        rows = num_rows(shape)
        return [Piece(hf=place.named(self.hf), hf_shape=shape, hf_row=0, row=0, num_rows=rows)]


@dataclass(frozen=True, slots=True)
class Stacked:
    """Equal parts one under the other, as gate and up projections of SwiGLU."""

    hf: tuple[str, ...]

    def pieces(self, shape: Shape, place: Place) -> list[Piece]:
        """One piece a part."""
        each, rest = divmod(shape[0], len(self.hf))
        assert not rest, (shape, self.hf)
        part = (each, *shape[1:])
        rows = num_rows(part)
        return [
            Piece(hf=place.named(name), hf_shape=part, hf_row=0, row=index * rows, num_rows=rows)
            for index, name in enumerate(self.hf)
        ]


@dataclass(frozen=True, slots=True)
class QueryKeyValue:
    """Queries, keys and values mixed by query group, as Megatron keeps them: for each group its query
    heads, its key head and its value head."""

    query: str
    key: str
    value: str
    num_heads: int
    num_groups: int
    head_dim: int

    def pieces(self, shape: Shape, place: Place) -> list[Piece]:
        """Three pieces a group."""
        taken = self.num_heads // self.num_groups * self.head_dim, self.head_dim, self.head_dim
        found, row = [], 0
        for group in range(self.num_groups):
            for name, rows in zip((self.query, self.key, self.value), taken, strict=True):
                whole = (rows * self.num_groups, *shape[1:])
                hf = place.named(name)
                found.append(Piece(hf=hf, hf_shape=whole, hf_row=group * rows, row=row, num_rows=rows))
                row += rows
        return found


@dataclass(frozen=True, slots=True)
class OfExperts:
    """One expert's part of a tensor [E, ...] of all experts, as transformers 5 keeps them."""

    hf: str
    num_experts: int

    def pieces(self, shape: Shape, place: Place) -> list[Piece]:
        """All rows at once."""
        assert place.expert is not None, self.hf
        rows, whole = num_rows(shape), (self.num_experts, *shape)
        first = place.expert * rows
        return [Piece(hf=place.named(self.hf), hf_shape=whole, hf_row=first, row=0, num_rows=rows)]


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """One row a token; Megatron may have more rows, which belong to no token and are zero."""

    hf: str

    def pieces(self, shape: Shape, place: Place) -> list[Piece]:
        """The rows that belong to tokens."""
        rows = shape[0] if place.vocab_size is None else min(place.vocab_size, shape[0])
        return [Piece(hf=place.named(self.hf), hf_shape=(rows, *shape[1:]), hf_row=0, row=0, num_rows=rows)]
