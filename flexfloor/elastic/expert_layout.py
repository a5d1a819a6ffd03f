"""Where the routed experts of one rank keep their parameters.

There are two layouts. In Megatron's `SequentialMLP` every expert has modules of its own:
`local_experts.0.linear_fc1.weight` and so on. Transformer Engine's grouped layers have one module for each of
the two products, with a parameter for each expert: `linear_fc1.weight0` to `linear_fc1.weightN`. Whatever
reads, moves, trains or converts experts asks here and knows neither.

Invariants:
- An expert has the same parameters in the same order in both, and each has the same global name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from torch import Tensor

_IN_ITS_OWN_MODULE = re.compile(r"(?P<layer>.*)\.experts\.local_experts\.(?P<place>\d+)\.(?P<rest>.*)")
_NUMBERED = re.compile(r"(?P<layer>.*)\.experts\.(?P<rest>linear_fc[12]\.weight)(?P<place>\d+)")
_PRODUCTS = ("linear_fc1", "linear_fc2")


def is_numbered(experts: Any) -> bool:
    """Whether a module holds the parameters of all experts, `weight0` to `weightN`."""
    return not hasattr(experts, "local_experts")


def weights_by_place(experts: Any) -> list[tuple[Tensor, ...]]:
    """By place among the experts of this rank: an expert's parameters, those of its first product first."""
    if not is_numbered(experts):
        return [tuple(expert.parameters()) for expert in experts.local_experts]
    products = [getattr(experts, name) for name in _PRODUCTS]
    return [
        tuple(getattr(product, f"weight{place}") for product in products)
        for place in range(experts.num_local_experts)
    ]


def global_name(name: str, experts_of_layer: dict[str, Sequence[int]]) -> str:
    """What a parameter, in either layout, is called in the whole model; names of no expert stay.

    Args:
        name: in the model of this rank.
        experts_of_layer: by name of an MoE layer: the experts that this rank holds, by place.
    """
    match = _IN_ITS_OWN_MODULE.fullmatch(name) or _NUMBERED.fullmatch(name)
    if match is None:
        return name
    layer, place, rest = match["layer"], match["place"], match["rest"]
    return f"{layer}.experts.local_experts.{experts_of_layer[layer][int(place)]}.{rest}"
