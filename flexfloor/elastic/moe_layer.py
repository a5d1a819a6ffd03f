"""The MoE layer of every family: Megatron's, with the routed experts reachable by global number.

Training and the reference rollout path run Megatron's own dispatcher and experts. The fast rollout
path reads the same parameters through `expert_weights`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from megatron.core.transformer.moe.moe_layer import MoELayer
from torch import Tensor, nn

from flexfloor.elastic.load import ExpertLoad


class ElasticMoELayer(MoELayer):
    """Megatron's MoE layer."""

    def expert_weights(self) -> dict[int, tuple[Tensor, Tensor]]:
        """Global expert number to (gate-and-up [2F, H], down [H, F]) for the experts held here."""
        return {
            expert: (mlp.linear_fc1.weight, mlp.linear_fc2.weight)
            for expert, mlp in zip(self.local_expert_indices, self.experts.local_experts, strict=True)
        }


def moe_layers(model: nn.Module) -> list[ElasticMoELayer]:
    """The MoE layers of `model`, in order."""
    return [module for module in model.modules() if isinstance(module, ElasticMoELayer)]


@contextmanager
def counting(model: nn.Module, load: ExpertLoad) -> Iterator[None]:
    """Count into `load` the rows that the routers of `model` route in the block."""
    layers = moe_layers(model)
    for index, layer in enumerate(layers):
        layer.router.load, layer.router.load_layer = load, index
    try:
        yield
    finally:
        for layer in layers:
            layer.router.load = None
