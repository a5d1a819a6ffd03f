"""From a `ModelConfig` to Megatron's `GPTModel` on this rank's device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.process_groups_config import ProcessGroupCollection

from flexfloor import device
from flexfloor.elastic.grouped_experts import can_group
from flexfloor.elastic.moe_layer import moe_layers
from flexfloor.models.block_spec import elastic_layers, use_grouped_experts
from flexfloor.models.config import ModelConfig
from flexfloor.models.hf_config import read_hf_config, weight_block_in
from flexfloor.models.hf_keys import HF_FAMILIES
from flexfloor.models.init import initialize_weights
from flexfloor.models.recomputation import set_recompute
from flexfloor.models.registry import get_family, weight_map_of
from flexfloor.models.sharding import cut_config, mark_cut_parameters
from flexfloor.models.vocabulary import cut_logits
from flexfloor.models.weights.take import import_weights
from flexfloor.train import checkpoint_folder
from flexfloor.train.checkpoint import load_weights


def build_model(
    model: ModelConfig,
    *,
    vocab_size: int,
    num_tokens: int | None = None,
    max_sequence_length: int,
    groups: ProcessGroupCollection,
    seed: int = 0,
    take_weights: bool = True,
    groups_experts: bool | None = None,
    recompute: str = "none",
) -> GPTModel:
    """Build this rank's share of the model; all ranks call it.

    Args:
        model: the model's shape and where its weights are; `model.family` names the registered family.
        vocab_size: rows of the embedding and of the output layer.
        num_tokens: leading rows that are tokens, to which logits are cut; all when not given.
        max_sequence_length: positions that rotary angles may be asked for, prompt and response.
        groups: process groups; `groups.ep` spreads the experts, `groups.tp` cuts what is no expert.
        seed: of initial weights, which do not depend on the layout.
        take_weights: from `model.path`, if there is one; false where a checkpoint is loaded later.
        groups_experts: whether experts are computed by grouped products; not given = where the device has
            a kernel for them and they are SwiGLU networks.
        recompute: what backward computes again (`activations.RECOMPUTE`).

    Raises:
        ConfigError: on every rank, when the weights at `model.path` cannot be read or do not fit.
    """
    gpt = build_shell(
        model,
        vocab_size=vocab_size,
        max_sequence_length=max_sequence_length,
        groups=groups,
        groups_experts=groups_experts,
        recompute=recompute,
    )
    if num_tokens is not None:
        cut_logits(gpt, num_tokens)
    takes = model.path is not None and take_weights
    if not takes:
        initialize_weights(gpt, seed=seed, std=model.init_std, num_layers=model.num_layers)
    gpt = gpt.to(device=device.current_device(), dtype=getattr(torch, model.dtype))
    for layer in moe_layers(gpt):
        layer.router.widen_buffers()
    if takes:
        _take_weights(gpt, model)
    return gpt


def _take_weights(gpt: GPTModel, model: ModelConfig) -> None:
    assert model.path is not None
    said: dict[str, Any]
    folder = Path(model.path).expanduser()
    if checkpoint_folder.is_sealed(folder):
        load_weights(folder, model=[gpt])
        return
    if model.family in HF_FAMILIES:
        found = read_hf_config(folder)
        said = dict(mtp_layers=found.mtp_layers, weight_block=found.weight_block)
    else:
        said = dict(weight_block=weight_block_in(folder))
    import_weights(gpt, weight_map_of(model), folder, **said)


def build_shell(
    model: ModelConfig,
    *,
    vocab_size: int,
    max_sequence_length: int,
    groups: ProcessGroupCollection,
    groups_experts: bool | None = None,
    recompute: str = "none",
) -> GPTModel:
    """The model as Megatron makes it, its weights in no defined state; arguments as `build_model`'s.

    Under `torch.device("meta")` it takes no memory, and tells what a model consists of.
    """
    family = get_family(model.family)
    config = family.transformer_config(model, ep_size=groups.ep.size())
    set_recompute(config, recompute)
    cut_config(config, groups.tp.size())
    spec = family.block_spec(config)
    if groups_experts is None:
        groups_experts = device.has_grouped_products() and can_group(config)
    for layer in elastic_layers(spec):
        if groups_experts:
            use_grouped_experts(layer)
        # Not as pg_collection: 0.16 hands that to its own MoE layer class only, 0.19 to every class.
        layer.submodules.mlp.params = {**(layer.submodules.mlp.params or {}), "groups": groups}
    gpt = GPTModel(
        config=config,
        transformer_layer_spec=spec,
        vocab_size=vocab_size,
        max_sequence_length=max_sequence_length,
        position_embedding_type="rope",
        rotary_base=model.rope_theta,
        share_embeddings_and_output_weights=model.tie_embeddings,
        parallel_output=False,
        pg_collection=groups,
    )
    mark_cut_parameters(gpt)
    return gpt
