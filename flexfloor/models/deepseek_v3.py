"""DeepSeek-V3: latent attention, dense first layers, shared experts, sigmoid router with groups and biases.

Source: DeepSeek-AI, "DeepSeek-V3 Technical Report", arXiv 2412.19437. Its biases move towards an even
load in training; here `model.moe_router_bias_update_rate` says by how much, 0 by default. Angles are plain
rotary ones, or YaRN's with `model.rope_scaling`; multi-token prediction is no part of the model.
"""

from __future__ import annotations

from typing import Any, ClassVar

from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.transformer_config import TransformerConfig

from flexfloor.models.attention import PackedCoreAttention
from flexfloor.models.config import ModelConfig
from flexfloor.models.latent_attention import RolloutLatentAttention
from flexfloor.models.megatron_config import LatentConfig
from flexfloor.models.moe_family import MoEFamily
from flexfloor.models.rope_config import RopeScaling
from flexfloor.models.weights.fusion import Plain
from flexfloor.models.weights.weight_map import Row

_ATTENTION = {
    "linear_q_proj": ("q_proj", 0),  # without a latent of the queries
    "linear_q_down_proj": ("q_a_proj", 0),
    "q_layernorm": ("q_a_layernorm", None),
    "linear_q_up_proj": ("q_b_proj", 0),
    "linear_kv_down_proj": ("kv_a_proj_with_mqa", 0),
    "kv_layernorm": ("kv_a_layernorm", None),
    "linear_kv_up_proj": ("kv_b_proj", 0),
    "linear_proj": ("o_proj", 1),
}
"""Megatron's module of the attention to Hugging Face's, and the dimension that tensor parallelism cuts.
Transformer Engine's layers keep the two projections down whole."""


class DeepseekV3(MoEFamily):
    """The DeepSeek-V3 family."""

    config_class: ClassVar[type[TransformerConfig]] = LatentConfig

    def attention_settings(self, model: ModelConfig) -> dict[str, Any]:
        """Latent ranks and the channels of a head."""
        return dict(
            num_attention_heads=model.num_attention_heads,
            q_lora_rank=model.q_lora_rank,
            kv_lora_rank=model.kv_lora_rank,
            qk_head_dim=model.qk_nope_head_dim,
            qk_pos_emb_head_dim=model.qk_rope_head_dim,
            v_head_dim=model.v_head_dim,
            qk_layernorm=model.q_lora_rank is not None,
            latent_norm_eps=model.latent_norm_eps or model.norm_eps,
            rotary_base=model.rope_theta,
            **_angles(model.rope_scaling),
        )

    def adapt_attention(self, attention: ModuleSpec) -> None:
        """Latent attention over packed rows or the rollout's cache."""
        attention.module = RolloutLatentAttention
        attention.submodules.core_attention = PackedCoreAttention

    def attention_rows(self, model: ModelConfig) -> tuple[Row, ...]:
        """One tensor to one; a model has the queries in one step or in two."""
        return tuple(
            Row(
                megatron=f"decoder.layers.{{layer}}.self_attention.{own}.weight",
                hf=Plain(f"model.layers.{{layer}}.self_attn.{hf}.weight"),
                tp_dim=tp_dim,
            )
            for own, (hf, tp_dim) in _ATTENTION.items()
        )


def _angles(scaling: RopeScaling) -> dict[str, Any]:
    if not scaling.is_on:
        return dict(rope_type="rope")
    return dict(
        rope_type="yarn",
        rotary_scaling_factor=scaling.factor,
        original_max_position_embeddings=scaling.original_max_position_embeddings,
        beta_fast=scaling.beta_fast,
        beta_slow=scaling.beta_slow,
        mscale=scaling.mscale,
        mscale_all_dim=scaling.mscale_all_dim,
    )
