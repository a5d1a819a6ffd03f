"""From a `ModelConfig` to Megatron's `GPTModel` on this rank's device."""

from __future__ import annotations

import torch
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.process_groups_config import ProcessGroupCollection

from flexfloor import device
from flexfloor.models.block_spec import elastic_layers
from flexfloor.models.config import ModelConfig
from flexfloor.models.init import initialize_weights
from flexfloor.models.registry import get_family
from flexfloor.models.vocabulary import cut_logits


def build_model(
    model: ModelConfig,
    *,
    vocab_size: int,
    num_tokens: int | None = None,
    max_sequence_length: int,
    groups: ProcessGroupCollection,
    seed: int = 0,
) -> GPTModel:
    """Build the model with this rank's share of the experts.

    Args:
        model: the model's shape; `model.family` names the registered family.
        vocab_size: rows of the embedding and of the output layer.
        num_tokens: leading rows that are tokens, to which logits are cut; all when not given.
        max_sequence_length: positions that rotary angles may be asked for, prompt and response.
        groups: process groups; `groups.ep` spreads the experts.
        seed: of the initial weights, which do not depend on the layout.
    """
    family = get_family(model.family)
    config = family.transformer_config(model, ep_size=groups.ep.size())
    spec = family.block_spec(config)
    for layer in elastic_layers(spec):
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
    if num_tokens is not None:
        cut_logits(gpt, num_tokens)
    initialize_weights(gpt, seed=seed, std=model.init_std, num_layers=model.num_layers)
    return gpt.to(device=device.current_device(), dtype=getattr(torch, model.dtype))
