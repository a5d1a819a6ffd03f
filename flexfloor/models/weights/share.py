"""Which part of a tensor a rank holds where tensor parallelism cuts it.

Queries, keys and values are cut between query groups, which lie one behind the other, so that a rank has a
range of rows. Of gate and up projections it has a range of each half, those two one above the other.

Invariants:
- The parts of all ranks together are the whole, each element once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from megatron.core.models.gpt.gpt_model import GPTModel

from flexfloor.models.init import LOCAL_EXPERT
from flexfloor.models.weights.fusion import Piece, Shape, num_rows
from flexfloor.models.weights.weight_map import WeightMap


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """How ranks share a tensor."""

    dim: int | None
    """Dimension that is cut; None = every rank holds all of it."""
    num_parts: int
    """Equal parts one above the other, each cut by itself."""
    num_ranks: int
    """1 where `dim` is None."""

    def whole(self, held: Shape) -> Shape:
        """The shape of the tensor of which each rank holds one of shape `held`."""
        assert self.dim is None or self.dim < len(held) <= 2, (self, held)
        return tuple(size * self.num_ranks if dim == self.dim else size for dim, size in enumerate(held))

    def held(self, piece: Piece, whole: Shape, rank: int) -> list[Piece]:
        """What the rank of position `rank` holds of `piece` of the tensor of shape `whole`.

        Rows of the result are those of what the rank holds.
        """
        if self.num_ranks == 1:
            return [piece]
        if self.dim == 1:
            return [replace(piece, column=rank * (whole[1] // self.num_ranks))]
        each, found = num_rows(whole) // (self.num_parts * self.num_ranks), []
        for part in range(self.num_parts):
            begin = (part * self.num_ranks + rank) * each
            first, last = max(begin, piece.row), min(begin + each, piece.row + piece.num_rows)
            if first < last:
                row, hf_row = part * each + first - begin, piece.hf_row + first - piece.row
                found.append(replace(piece, row=row, hf_row=hf_row, num_rows=last - first))
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorRank:
    """A rank's position among those that share tensors."""

    num_ranks: int
    rank: int
    num_expert_ranks: int
    """That share an expert."""
    expert_rank: int

    @classmethod
    def of(cls, gpt: GPTModel) -> TensorRank:
        """This rank's, by the groups that `gpt` was built with."""
        groups = gpt.pg_collection
        return cls(
            num_ranks=groups.tp.size(),
            rank=groups.tp.rank(),
            num_expert_ranks=groups.expt_tp.size(),
            expert_rank=groups.expt_tp.rank(),
        )

    def among(self, name: str) -> int:
        """The position among the ranks that share the tensor of Megatron's global `name`."""
        return self.expert_rank if LOCAL_EXPERT.fullmatch(name) else self.rank

    def share(self, weight_map: WeightMap, name: str) -> Share:
        """How the tensor of Megatron's global `name` is shared.

        Raises:
            WeightsError: the map has no row for it, or several.
        """
        row, _ = weight_map.row_of(name)
        num_ranks = self.num_expert_ranks if LOCAL_EXPERT.fullmatch(name) else self.num_ranks
        return Share(dim=row.tp_dim, num_parts=row.tp_parts, num_ranks=1 if row.tp_dim is None else num_ranks)
