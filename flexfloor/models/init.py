"""Initial weights that depend on (seed, parameter, expert) alone, never on who holds them.

Each parameter is drawn whole, by a generator keyed with its global name, and a rank keeps its piece, so that
a model has the same weights on any number of ranks and under any placement of its experts.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Iterator
from typing import TypeVar

import torch
from torch import Tensor, nn

from flexfloor.elastic.expert_layout import global_name
from flexfloor.models.sharding import cuts_of

LOCAL_EXPERT = re.compile(r"(.*\.experts\.local_experts\.)(\d+)(\..*)")
"""The name of a tensor of an expert: up to its number, the number, and the rest."""
_T = TypeVar("_T", bound=Tensor)
_RESIDUAL_OUTPUTS = ("linear_proj.weight", "linear_fc2.weight")


def global_parameters(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Parameters with local expert numbers replaced by global ones."""
    yield from _globally_named(model, model.named_parameters())


def global_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters, and the buffers that a checkpoint holds beside them, each once by its global name.

    Asked for its state a router brings its biases to float32, where it keeps them from the first pass on.
    """
    kept = model.state_dict(keep_vars=True).keys()
    buffers = ((name, buffer) for name, buffer in model.named_buffers() if name in kept)
    return dict(_globally_named(model, (*model.named_parameters(), *buffers)))


def _globally_named(model: nn.Module, named: Iterable[tuple[str, _T]]) -> Iterator[tuple[str, _T]]:
    experts_of = {
        name: module.local_expert_indices
        for name, module in model.named_modules()
        if hasattr(module, "local_expert_indices") and hasattr(module, "experts")
    }
    for name, tensor in named:
        yield global_name(name, experts_of), tensor


@torch.no_grad()
def initialize_weights(model: nn.Module, *, seed: int, std: float, num_layers: int) -> None:
    """Normal weights of deviation `std`, those that write into the residual stream by 1/sqrt(2 layers).

    Norm weights are one. The scaling is that of Megatron's `scaled_init_method_normal`.
    """
    cuts = cuts_of(model)
    for name, parameter in global_parameters(model):
        if parameter.dim() == 1:
            parameter.fill_(1.0)
            continue
        scale = std / math.sqrt(2 * num_layers) if name.endswith(_RESIDUAL_OUTPUTS) else std
        cut = cuts.get(name)
        shape = parameter.shape if cut is None else cut.whole_shape(parameter.shape)
        drawn = torch.randn(shape, generator=_generator(seed, name), dtype=torch.float64) * scale
        parameter.copy_(drawn if cut is None else cut.piece(drawn))


def _generator(seed: int, name: str) -> torch.Generator:
    digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)
