"""FlexFloor's MoE layer in the MLP slot of one of Megatron's layer specs."""

from __future__ import annotations

import functools

from megatron.core.transformer.spec_utils import ModuleSpec

from flexfloor.elastic.moe_layer import ElasticMoELayer
from flexfloor.elastic.router import ElasticRouter


def use_elastic_moe(layer: ModuleSpec) -> None:
    """Replace the MoE layer and its router in `layer`; experts and shared experts stay Megatron's."""
    built_by = layer.submodules.mlp
    # 0.16 describes the MoE layer by a ModuleSpec, 0.19 by its constructor with arguments filled in.
    is_partial = isinstance(built_by, functools.partial)
    submodules = built_by.keywords["submodules"] if is_partial else built_by.submodules
    submodules.router = ElasticRouter
    layer.submodules.mlp = ModuleSpec(module=ElasticMoELayer, submodules=submodules)
