"""A model's configuration and weights under Hugging Face's names, for comparing with its own classes.

The layout is that of transformers 5, whose experts are fused: gate and up projections of all experts
in one tensor. All experts must be held by this rank.
"""

from __future__ import annotations

from typing import Any

import torch
from megatron.core.models.gpt.gpt_model import GPTModel
from torch import Tensor
from transformers import AutoConfig, PretrainedConfig

from flexfloor.models.config import ModelConfig
from flexfloor.models.hf_config import hf_content


def hf_config(model: ModelConfig, *, vocab_size: int, max_sequence_length: int) -> PretrainedConfig:
    """Hugging Face's configuration of the same model; ConfigError if there is none."""
    content = hf_content(model, vocab_size=vocab_size, max_positions=max_sequence_length)
    content["dtype"] = getattr(torch, content.pop("torch_dtype"))
    return AutoConfig.for_model(**content)


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
    latent = layer.config.multi_latent_attention
    return {
        "input_layernorm.weight": layer.input_layernorm.weight,
        "post_attention_layernorm.weight": layer.pre_mlp_layernorm.weight,
        **(_latent_attention if latent else _attention)(layer.self_attention),
        **(_experts if hasattr(layer.mlp, "router") else _dense)(layer.mlp),
    }


def _attention(attention: Any) -> dict[str, Tensor]:
    config = attention.config
    heads, groups, dim = config.num_attention_heads, config.num_query_groups, config.kv_channels
    mixed = attention.linear_qkv.weight.view(groups, heads // groups + 2, dim, -1)
    query, key, value = mixed.split([heads // groups, 1, 1], dim=1)
    return _head_norms(attention) | {
        "self_attn.q_proj.weight": query.reshape(heads * dim, -1),
        "self_attn.k_proj.weight": key.reshape(groups * dim, -1),
        "self_attn.v_proj.weight": value.reshape(groups * dim, -1),
        "self_attn.o_proj.weight": attention.linear_proj.weight,
    }


def _head_norms(attention: Any) -> dict[str, Tensor]:
    if not attention.config.qk_layernorm:
        return {}
    return {
        "self_attn.q_norm.weight": attention.q_layernorm.weight,
        "self_attn.k_norm.weight": attention.k_layernorm.weight,
    }


def _latent_attention(attention: Any) -> dict[str, Tensor]:
    if attention.config.q_lora_rank is None:
        query = {"q_proj": attention.linear_q_proj}
    else:
        query = {
            "q_a_proj": attention.linear_q_down_proj,
            "q_a_layernorm": attention.q_layernorm,
            "q_b_proj": attention.linear_q_up_proj,
        }
    modules = query | {
        "kv_a_proj_with_mqa": attention.linear_kv_down_proj,
        "kv_a_layernorm": attention.kv_layernorm,
        "kv_b_proj": attention.linear_kv_up_proj,
        "o_proj": attention.linear_proj,
    }
    return {f"self_attn.{name}.weight": module.weight for name, module in modules.items()}


def _experts(mlp: Any) -> dict[str, Tensor]:
    experts = mlp.expert_weights()
    up, down = zip(*(experts[number] for number in range(mlp.config.num_moe_experts)), strict=True)
    named = {
        "mlp.gate.weight": mlp.router.weight,
        "mlp.experts.gate_up_proj": torch.stack(up),
        "mlp.experts.down_proj": torch.stack(down),
    }
    if mlp.router.expert_bias is not None:
        named["mlp.gate.e_score_correction_bias"] = mlp.router.expert_bias
    if mlp.use_shared_expert:
        named |= {
            name.replace("mlp", "mlp.shared_experts"): w for name, w in _dense(mlp.shared_experts).items()
        }
    return named


def _dense(mlp: Any) -> dict[str, Tensor]:
    gate, up = mlp.linear_fc1.weight.chunk(2)
    return {
        "mlp.gate_proj.weight": gate,
        "mlp.up_proj.weight": up,
        "mlp.down_proj.weight": mlp.linear_fc2.weight,
    }
