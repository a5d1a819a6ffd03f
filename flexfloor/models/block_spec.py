"""Megatron's own specification of a model's layers, with FlexFloor's modules in it."""

from __future__ import annotations

import functools
from collections.abc import Callable

from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules
from megatron.core.transformer.transformer_config import TransformerConfig

from flexfloor.elastic.grouped_experts import GroupedExperts
from flexfloor.elastic.moe_layer import ElasticMoELayer
from flexfloor.elastic.router import ElasticRouter
from flexfloor.models.norm import RowsNorm, use_rows_norm


def block_spec(
    config: TransformerConfig, adapt_attention: Callable[[ModuleSpec], None]
) -> TransformerBlockSubmodules:
    """Local layers for `config`, dense or with experts as its `moe_layer_freq` says.

    Args:
        adapt_attention: puts FlexFloor's modules into the specification of a layer's attention.
    """
    spec = get_gpt_decoder_block_spec(config, use_transformer_engine=False, normalization="RMSNorm")
    # Layers of a kind share one specification, which is adapted once.
    for layer in {id(layer): layer for layer in spec.layer_specs}.values():
        attention = layer.submodules.self_attention
        for submodules in (layer.submodules, attention.submodules):
            use_rows_norm(submodules)
        adapt_attention(attention)
    spec.layer_norm = RowsNorm
    marked = zip(spec.layer_specs, config.moe_layer_freq, strict=True)
    for layer in {id(layer): layer for layer, has_experts in marked if has_experts}.values():
        use_elastic_moe(layer)
    return spec


def elastic_layers(spec: TransformerBlockSubmodules) -> list[ModuleSpec]:
    """The specifications of layers with FlexFloor's MoE layer, each once."""
    found = {
        id(layer): layer for layer in spec.layer_specs if _module(layer.submodules.mlp) is ElasticMoELayer
    }
    return list(found.values())


def _module(built_by: object) -> object:
    return getattr(built_by, "module", None)


def use_elastic_moe(layer: ModuleSpec) -> None:
    """Replace the MoE layer and its router in `layer`; experts and shared experts stay Megatron's."""
    built_by = layer.submodules.mlp
    # 0.16 describes the MoE layer by a ModuleSpec, 0.19 by its constructor with arguments filled in.
    is_partial = isinstance(built_by, functools.partial)
    submodules = built_by.keywords["submodules"] if is_partial else built_by.submodules
    submodules.router = ElasticRouter
    layer.submodules.mlp = ModuleSpec(module=ElasticMoELayer, submodules=submodules)


def use_grouped_experts(layer: ModuleSpec) -> None:
    """Let the experts of a layer with `ElasticMoELayer` be computed by grouped products."""
    submodules = layer.submodules.mlp.submodules
    built_by = submodules.experts
    # 0.16 describes the experts by a ModuleSpec, 0.19 by their constructor with arguments filled in.
    if isinstance(built_by, functools.partial):
        submodules.experts = functools.partial(GroupedExperts, *built_by.args, **built_by.keywords)
    else:
        submodules.experts = ModuleSpec(module=GroupedExperts, submodules=built_by.submodules)
