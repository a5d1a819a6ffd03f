"""A model's configuration and weights under Hugging Face's names, for comparing with its own classes.

The layout is that of transformers 5, whose experts are fused: gate and up projections of all experts
in one tensor. All experts must be held by this rank.
"""

from __future__ import annotations

from typing import Any

import torch
from megatron.core.models.gpt.gpt_model import GPTModel
from torch import Tensor
from transformers import MixtralConfig, PretrainedConfig, Qwen3MoeConfig

from flexfloor.models.config import ModelConfig


def hf_config(model: ModelConfig, *, vocab_size: int, max_sequence_length: int) -> PretrainedConfig:
    """Hugging Face's configuration of the same model, a Mixtral or a Qwen3-MoE."""
    shared = _shared(model) | {"vocab_size": vocab_size, "max_position_embeddings": max_sequence_length}
    if model.family == "mixtral":
        assert model.norm_topk_prob, "Hugging Face's Mixtral always divides by the sum"
        return MixtralConfig(**shared, intermediate_size=model.moe_ffn_hidden_size)
    assert model.family == "qwen3_moe", model.family
    return Qwen3MoeConfig(
        **shared,
        moe_intermediate_size=model.moe_ffn_hidden_size,
        norm_topk_prob=model.norm_topk_prob,
    )


def _shared(model: ModelConfig) -> dict[str, Any]:
    return dict(
        hidden_size=model.hidden_size,
        num_hidden_layers=model.num_layers,
        num_attention_heads=model.num_attention_heads,
        num_key_value_heads=model.num_query_groups,
        head_dim=model.channels_per_head,
        num_local_experts=model.num_experts,
        num_experts_per_tok=model.moe_router_topk,
        rms_norm_eps=model.norm_eps,
        rope_parameters={"rope_type": "default", "rope_theta": model.rope_theta},
        tie_word_embeddings=model.tie_embeddings,
        sliding_window=None,
        dtype=getattr(torch, model.dtype),
    )


def hf_state_dict(gpt: GPTModel) -> dict[str, Tensor]:
    """Weights of Megatron's `gpt` under Hugging Face's names."""
    state = {
        "model.embed_tokens.weight": gpt.embedding.word_embeddings.weight,
        "model.norm.weight": gpt.decoder.final_layernorm.weight,
    }
    state["lm_head.weight"] = (
        state["model.embed_tokens.weight"]
        if gpt.share_embeddings_and_output_weights
        else gpt.output_layer.weight
    )
    for index, layer in enumerate(gpt.decoder.layers):
        state |= {f"model.layers.{index}.{name}": weight for name, weight in _layer(layer).items()}
    return {name: weight.detach() for name, weight in state.items()}


def _layer(layer: Any) -> dict[str, Tensor]:
    config = layer.config
    heads, groups, dim = config.num_attention_heads, config.num_query_groups, config.kv_channels
    mixed = layer.self_attention.linear_qkv.weight.view(groups, heads // groups + 2, dim, -1)
    query, key, value = mixed.split([heads // groups, 1, 1], dim=1)
    experts = layer.mlp.expert_weights()
    up, down = zip(*(experts[number] for number in range(config.num_moe_experts)), strict=True)
    return _head_norms(layer.self_attention) | {
        "input_layernorm.weight": layer.input_layernorm.weight,
        "post_attention_layernorm.weight": layer.pre_mlp_layernorm.weight,
        "self_attn.q_proj.weight": query.reshape(heads * dim, -1),
        "self_attn.k_proj.weight": key.reshape(groups * dim, -1),
        "self_attn.v_proj.weight": value.reshape(groups * dim, -1),
        "self_attn.o_proj.weight": layer.self_attention.linear_proj.weight,
        "mlp.gate.weight": layer.mlp.router.weight,
        "mlp.experts.gate_up_proj": torch.stack(up),
        "mlp.experts.down_proj": torch.stack(down),
    }


def _head_norms(attention: Any) -> dict[str, Tensor]:
    if not attention.config.qk_layernorm:
        return {}
    return {
        "self_attn.q_norm.weight": attention.q_layernorm.weight,
        "self_attn.k_norm.weight": attention.k_layernorm.weight,
    }
