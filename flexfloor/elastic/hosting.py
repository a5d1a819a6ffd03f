"""MoE layers that compute under a placement for as long as a block lasts.

Megatron's layer runs as it is: in the block its dispatcher knows the placement, and its experts are a copy
of Megatron's module that runs over what this rank hosts, its own experts and guests. A guest runs through
the forward of an own expert with weights of its own.

Invariants:
- Outside of the block a layer holds the modules that it trains, and none of a guest's weights.
- No parameter is copied.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn
from torch.func import functional_call

from flexfloor.elastic.dispatcher import PlacedDispatcher
from flexfloor.elastic.expert_layout import is_numbered
from flexfloor.elastic.grouped_experts import grouped_swiglu
from flexfloor.elastic.moe_layer import ElasticMoELayer


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedLayer:
    """One MoE layer, and what stands in it while it computes under a placement."""

    layer: ElasticMoELayer
    dispatcher: PlacedDispatcher
    experts: nn.Module


def hosted_layer(
    layer: ElasticMoELayer,
    hosted: Sequence[Sequence[int]],
    guests: Mapping[int, Sequence[Tensor]],
    group: dist.ProcessGroup,
) -> HostedLayer:
    """What `computing_as` needs of `layer`.

    Args:
        hosted: experts that each rank of `group` computes.
        guests: by expert: parameters, as `ElasticMoELayer.expert_weights` names them, of at least those that
            this rank computes and does not own.
    """
    assert not layer.shared_expert_overlap, "this dispatcher computes no shared experts"
    tp_group = layer.token_dispatcher.tp_group
    return HostedLayer(
        layer=layer,
        dispatcher=PlacedDispatcher(layer.config, hosted, group=group, tp_group=tp_group),
        experts=_experts(layer, hosted[group.rank()], guests),
    )


def _experts(layer: ElasticMoELayer, hosted: Sequence[int], guests: Mapping[int, Sequence[Tensor]]) -> Any:
    if is_numbered(layer.experts):
        weights = {**guests, **layer.expert_weights()}
        return _HostedTogether([tuple(weights[expert]) for expert in hosted])
    own = dict(zip(layer.local_expert_indices, layer.experts.local_experts, strict=True))
    some = next(iter(own.values()))
    names = [name for name, _ in some.named_parameters()]
    experts = copy.copy(layer.experts)
    # The copy shares its table of modules with the original until it gets its own.
    experts._modules = {}
    experts.num_local_experts = len(hosted)
    experts.local_experts = [
        own[expert] if expert in own else _GuestExpert(some, dict(zip(names, guests[expert], strict=True)))
        for expert in hosted
    ]
    return experts


class _HostedTogether(nn.Module):
    """Own experts and guests in grouped products, where one module holds the weights of all own ones.

    That module computes with as many experts as it was built for. This one takes any weights, by PyTorch,
    and names no parameter.
    """

    def __init__(self, weights: Sequence[tuple[Tensor, ...]]):
        super().__init__()
        self._weights = list(weights)

    def forward(self, rows: Tensor, rows_per_expert: Tensor, probs: Tensor) -> tuple[Tensor, None]:
        """As `GroupedExperts`."""
        return grouped_swiglu(rows, rows_per_expert, probs, self._weights), None


class _GuestExpert:
    """Computes like an own expert, with weights of its own."""

    def __init__(self, like: nn.Module, weights: dict[str, Tensor]):
        self._like, self._weights = like, weights

    def __call__(self, *inputs: Tensor) -> Any:
        return functional_call(self._like, self._weights, inputs)

    def parameters(self) -> Iterator[Tensor]:
        """In Megatron's order."""
        return iter(self._weights.values())


@contextmanager
def computing_as(hosted: Sequence[HostedLayer]) -> Iterator[None]:
    """Let the layers of `hosted` compute under its placement in the block."""
    home = [(each.layer.token_dispatcher, each.layer.experts) for each in hosted]
    try:
        for each in hosted:
            each.layer.token_dispatcher, each.layer.experts = each.dispatcher, each.experts
        yield
    finally:
        for each, (dispatcher, experts) in zip(hosted, home, strict=True):
            each.layer.token_dispatcher, each.layer.experts = dispatcher, experts
