"""A family's weight map: one row for each kind of tensor, read in both directions.

Megatron's names are those of `flexfloor.models.init.global_tensors`, so that an expert has its number in the
whole model. Which tensors there are is not said here: of two rows for what some models have and others have
not, such as a latent of the queries, that one counts whose tensor the model holds.

Invariants:
- A tensor of Megatron has exactly one row.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from flexfloor.errors import WeightsError
from flexfloor.models.weights.fusion import Fusion, Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One kind of tensor."""

    megatron: str
    """Megatron's name, with {layer} and {expert}."""
    hf: Fusion
    """What it is made of in files as the hub has them, experts each by itself."""
    fused: Fusion | None = None
    """What it is made of in transformers 5's memory, experts in one tensor; None = no different."""
    tp_dim: int | None = None
    """Dimension of Megatron's tensor that tensor parallelism cuts, for an expert that of experts; None =
    every rank holds all of it."""
    tp_parts: int = 1
    """Equal parts one above the other that are cut each by itself: 2 of gate and up projections."""

    def layouts(self) -> tuple[Fusion, ...]:
        """All ways in which files may hold it, the usual one first."""
        return (self.hf,) if self.fused is None else (self.hf, self.fused)


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightMap:
    """Names and fusions of a family's weights."""

    rows: tuple[Row, ...]
    ignored: tuple[str, ...] = ()
    """Names in files that hold nothing that is learned."""
    tied: tuple[str, str] | None = None
    """A name that may stand in files of models with tied embeddings, and the one that it then equals."""
    layers: str = "model.layers.{layer}."
    """How names in files begin that belong to a layer; those past the last are of multi-token prediction."""

    def row_of(self, megatron: str) -> tuple[Row, Place]:
        """The row of Megatron's tensor, and which of the row's tensors it is.

        Raises:
            WeightsError: there is none, or several.
        """
        found = [(row, match) for row in self.rows if (match := _pattern(row.megatron).fullmatch(megatron))]
        if len(found) != 1:
            patterns = ", ".join(row.megatron for row, _ in found) or "none"
            raise WeightsError(f"the weight map needs one row for {megatron} and has {patterns}")
        row, match = found[0]
        return row, Place(**{name: int(number) for name, number in match.groupdict().items()})

    def is_ignored(self, hf: str) -> bool:
        """Whether a name in a file is one of `ignored`."""
        return any(_pattern(pattern).fullmatch(hf) for pattern in self.ignored)

    def layer_of(self, hf: str) -> int | None:
        """The layer that a name in a file belongs to; None for what belongs to none."""
        match = _pattern(self.layers).match(hf)
        return int(match["layer"]) if match else None


@functools.cache
def _pattern(pattern: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\{(layer|expert)\\}", r"(?P<\1>\\d+)", re.escape(pattern)))
