"""Rows of whole tensors on ranks that hold parts, brought to the rank that writes them.

All ranks ask for the same rows in the same order, so that each knows what it has to send and to whom.

Invariants:
- No rank holds more of another's than the rows that were asked for.
- What several ranks hold alike comes from the lowest of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor

from flexfloor.models.init import LOCAL_EXPERT
from flexfloor.models.weights.fusion import Piece, Shape, row_width
from flexfloor.models.weights.shard_file import Rows
from flexfloor.models.weights.share import Share, TensorRank
from flexfloor.models.weights.take import as_rows

_NO_EXPERT = -1


class GatheredRows:
    """The tensors of a model on ranks; all ranks make it and call `rows` alike."""

    def __init__(
        self,
        own: Mapping[str, Tensor],
        shapes: Mapping[str, Shape],
        shares: Mapping[str, Share],
        position: TensorRank,
    ) -> None:
        """Args:
        own: what this rank holds, by global name.
        shapes: of all tensors of the model, whole.
        shares: how ranks share each of them.
        """
        self._own, self._shapes, self._shares = own, shapes, shares
        here: list[tuple[TensorRank, list[int]]] = [(position, [])] * dist.get_world_size()
        dist.all_gather_object(here, (position, sorted(_experts(own))))
        self._holders = _lowest_holders(here)

    def owners(self, names: Iterable[str]) -> set[int]:
        """The ranks that write tensors: the lowest that hold part of them."""
        return {min(self._held_by(name)) for name in names}

    def rows_for(self, owner: int) -> Rows:
        """Rows of whole tensors, [rows, width] on `owner`, which must be an owner of what is asked for; the
        other ranks get none, and all call it."""
        return partial(self._rows, owner)

    def _rows(self, owner: int, name: str, row: int, num_rows: int) -> Tensor:
        rank, width, whole = dist.get_rank(), row_width(self._shapes[name]), None
        if self._shares[name].num_ranks == 1:
            return as_rows(self._own[name])[row : row + num_rows] if rank == owner else torch.empty(0, width)
        if rank == owner:
            whole = self._own[name].new_empty(num_rows, width)
        for holder, part in self._parts(name, row, num_rows):
            if holder == rank:
                mine = as_rows(self._own[name])[part.row : part.row + part.num_rows]
            if whole is not None:
                columns = width // (self._shares[name].num_ranks if self._shares[name].dim == 1 else 1)
                into = whole[part.hf_row : part.hf_row + part.num_rows, part.column : part.column + columns]
                into.copy_(mine if holder == rank else _received(into, holder))
            elif holder == rank:
                dist.send(mine.contiguous(), owner)
        return torch.empty(0, width) if whole is None else whole

    def _parts(self, name: str, row: int, num_rows: int) -> Iterator[tuple[int, Piece]]:
        """Which rank holds what of rows of a whole tensor; `hf_row` counts within those rows."""
        wanted = Piece(hf=name, hf_shape=self._shapes[name], hf_row=0, row=row, num_rows=num_rows)
        for position, holder in enumerate(self._held_by(name)):
            for part in self._shares[name].held(wanted, self._shapes[name], position):
                yield holder, part

    def _held_by(self, name: str) -> list[int]:
        """The ranks that share a tensor, by their position."""
        match = LOCAL_EXPERT.fullmatch(name)
        expert = int(match[2]) if match else _NO_EXPERT
        return [self._holders[expert, position] for position in range(self._shares[name].num_ranks)]


def _received(like: Tensor, sender: int) -> Tensor:
    received = torch.empty(like.shape, dtype=like.dtype, device=like.device)
    dist.recv(received, sender)
    return received


def _experts(names: Iterable[str]) -> set[int]:
    return {int(match[2]) for name in names if (match := LOCAL_EXPERT.fullmatch(name))}


def _lowest_holders(ranks: list[tuple[TensorRank, list[int]]]) -> dict[tuple[int, int], int]:
    """Expert, or `_NO_EXPERT`, and position to the lowest rank there."""
    found: dict[tuple[int, int], int] = {}
    for rank, (position, experts) in enumerate(ranks):
        found.setdefault((_NO_EXPERT, position.rank), rank)
        for expert in experts:
            found.setdefault((expert, position.expert_rank), rank)
    return found
