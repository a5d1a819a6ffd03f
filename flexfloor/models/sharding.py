"""How tensor parallelism cuts a model's parameters, and the pieces of a rank.

Column-parallel layers and the vocabulary are cut along dimension 0, row-parallel ones along dimension 1. A
gated network stacks its gate and its up projection in one matrix, and each of the two is cut. Everything
else lies on every rank of a replica, and experts are cut by nobody.

Invariants:
- `join` of all ranks' `piece`s is the whole tensor again.
- Pieces do not depend on the parameters' values: a model of any layout has the same whole tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from megatron.core.tensor_parallel.layers import (
    ColumnParallelLinear,
    RowParallelLinear,
    VocabParallelEmbedding,
    set_tensor_model_parallel_attributes,
)
from megatron.core.transformer.mlp import MLP
from megatron.core.transformer.transformer_config import TransformerConfig
from torch import Tensor, nn


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """How one parameter is shared by the ranks of a replica."""

    dim: int
    """The dimension that is cut."""
    stacked: int = 1
    """Matrices that lie one behind the other along `dim`, each of which is cut."""
    group: dist.ProcessGroup
    """The ranks that share the parameter, in order."""

    def whole_shape(self, piece: torch.Size) -> torch.Size:
        """Shape of the whole tensor of which a rank has one of shape `piece`."""
        return torch.Size(n * self.group.size() if d == self.dim else n for d, n in enumerate(piece))

    def piece(self, whole: Tensor) -> Tensor:
        """This rank's part of `whole`; a view where nothing is stacked."""
        parts = whole.chunk(self.stacked, self.dim)
        mine = [part.chunk(self.group.size(), self.dim)[self.group.rank()] for part in parts]
        return mine[0] if len(mine) == 1 else torch.cat(mine, self.dim)

    def join(self, pieces: Sequence[Tensor]) -> Tensor:
        """The whole tensor of all ranks' parts, in the order of the group."""
        stacks = zip(*(piece.chunk(self.stacked, self.dim) for piece in pieces), strict=True)
        return torch.cat([part for stack in stacks for part in stack], self.dim)


def cuts_of(model: nn.Module) -> dict[str, Cut]:
    """By local name, the parameters of `model` of which this rank holds a part only."""
    gated = {
        id(module.linear_fc1)
        for module in model.modules()
        if isinstance(module, MLP) and module.config.gated_linear_unit
    }
    found = {}
    for name, module in model.named_modules():
        dims = _cut_dims(module)
        if not dims or module.tp_group.size() == 1:
            continue
        for own, dim in dims.items():
            if getattr(module, own, None) is not None:
                stacked = 2 if id(module) in gated else 1
                found[f"{name}.{own}"] = Cut(dim=dim, stacked=stacked, group=module.tp_group)
    return found


def _cut_dims(module: nn.Module) -> dict[str, int]:
    if isinstance(module, RowParallelLinear):
        return {"weight": 1}
    if isinstance(module, VocabParallelEmbedding):
        return {"weight": 0}
    return {"weight": 0, "bias": 0} if isinstance(module, ColumnParallelLinear) else {}


def cut_config(config: TransformerConfig, tp_size: int) -> None:
    """Let `config`, of any family, be that of a model whose replicas have `tp_size` ranks."""
    config.tensor_model_parallel_size = tp_size
    config.expert_tensor_parallel_size = 1
    # Megatron asks for it beside experts: each rank of a replica routes its own share of the rows.
    config.sequence_parallel = tp_size > 1


def mark_cut_parameters(model: nn.Module) -> None:
    """Tell Megatron's gradient norm which parameters are a rank's own.

    Upstream says so while it draws weights, which it does not do here. Without a mark it counts a parameter
    on the first rank of a replica only, an expert too.
    """
    cuts = cuts_of(model)
    for name, parameter in model.named_parameters():
        is_expert = not getattr(parameter, "allreduce", True)
        is_marked = hasattr(parameter, "tensor_model_parallel")
        if not is_marked and (name in cuts or is_expert):
            dim = cuts[name].dim if name in cuts else 0
            set_tensor_model_parallel_attributes(parameter, True, dim, 1)
