"""A model's configuration as an object of transformers, for comparing with its own classes."""

from __future__ import annotations

from typing import Any

import torch
from transformers import DeepseekV3Config, MixtralConfig, PretrainedConfig, Qwen3MoeConfig

from flexfloor.models.config import ModelConfig


def hf_config(model: ModelConfig, *, vocab_size: int, max_sequence_length: int) -> PretrainedConfig:
    """Hugging Face's configuration of the same model, a Mixtral, a Qwen3-MoE or a DeepSeek-V3."""
    shared = _shared(model) | {"vocab_size": vocab_size, "max_position_embeddings": max_sequence_length}
    if model.family == "mixtral":
        assert model.norm_topk_prob, "Hugging Face's Mixtral always divides by the sum"
        return MixtralConfig(**shared, intermediate_size=model.moe_ffn_hidden_size)
    shared |= {"moe_intermediate_size": model.moe_ffn_hidden_size, "norm_topk_prob": model.norm_topk_prob}
    if model.family == "qwen3_moe":
        return Qwen3MoeConfig(**shared)
    assert model.family == "deepseek_v3", model.family
    return DeepseekV3Config(**shared | _deepseek(model))


def _deepseek(model: ModelConfig) -> dict[str, Any]:
    groups, taken = model.moe_router_num_groups or 1, model.moe_router_group_topk or 1
    assert taken == groups or model.moe_router_topk == 2 * taken, "Hugging Face's groups score their best two"
    assert model.norm_eps == 1e-6, (
        "Hugging Face's norms of latents have this epsilon whatever the others have"
    )
    return dict(
        num_key_value_heads=model.num_attention_heads,
        head_dim=model.qk_rope_head_dim,
        intermediate_size=model.ffn_hidden_size,
        first_k_dense_replace=model.first_k_dense_replace,
        n_shared_experts=model.num_shared_experts,
        n_group=groups,
        topk_group=taken,
        routed_scaling_factor=model.moe_router_topk_scaling_factor or 1.0,
        q_lora_rank=model.q_lora_rank,
        kv_lora_rank=model.kv_lora_rank,
        qk_nope_head_dim=model.qk_nope_head_dim,
        qk_rope_head_dim=model.qk_rope_head_dim,
        v_head_dim=model.v_head_dim,
        rope_interleave=True,
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
