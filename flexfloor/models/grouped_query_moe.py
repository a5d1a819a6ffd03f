"""What families of grouped-query attention and SwiGLU experts in every layer have in common.

A family says what sets it apart as class attributes; all else comes from the `model` section.

Routing is a softmax over all experts of which a token's top-k are taken. With `norm_topk_prob` their
probabilities are divided by their sum, and that is the softmax over the chosen logits alone: Megatron
calls it `moe_router_pre_softmax=False`, and its `True` never divides.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.transformer_config import TransformerConfig

from flexfloor.models.attention import PackedCoreAttention, RolloutSelfAttention
from flexfloor.models.config import ModelConfig
from flexfloor.models.layer_spec import use_elastic_moe


class GroupedQueryMoE:
    """Base of the families."""

    qk_norm: ClassVar[bool] = False
    """Whether each head's query and key are RMS-normalised before they are rotated."""

    def transformer_config(self, model: ModelConfig, *, ep_size: int) -> TransformerConfig:
        """Megatron's configuration for `model` with its experts spread over `ep_size` ranks."""
        dtype = getattr(torch, model.dtype)
        return TransformerConfig(
            num_layers=model.num_layers,
            hidden_size=model.hidden_size,
            num_attention_heads=model.num_attention_heads,
            num_query_groups=model.num_query_groups,
            kv_channels=model.channels_per_head,
            qk_layernorm=self.qk_norm,
            ffn_hidden_size=model.moe_ffn_hidden_size,
            moe_ffn_hidden_size=model.moe_ffn_hidden_size,
            num_moe_experts=model.num_experts,
            moe_router_topk=model.moe_router_topk,
            moe_router_pre_softmax=not model.norm_topk_prob,
            moe_router_load_balancing_type="none",
            moe_token_dispatcher_type="alltoall",
            moe_grouped_gemm=False,
            expert_model_parallel_size=ep_size,
            normalization="RMSNorm",
            layernorm_epsilon=model.norm_eps,
            gated_linear_unit=True,
            activation_func=torch.nn.functional.silu,
            add_bias_linear=False,
            hidden_dropout=0.0,
            attention_dropout=0.0,
            params_dtype=dtype,
            pipeline_dtype=dtype,
            bf16=dtype is torch.bfloat16,
            calculate_per_token_loss=True,
            perform_initialization=False,
            use_cpu_initialization=True,
            bias_activation_fusion=False,
            masked_softmax_fusion=False,
            bias_dropout_fusion=False,
            persist_layer_norm=False,
            gradient_accumulation_fusion=False,
        )

    def layer_spec(self, model: ModelConfig) -> ModuleSpec:
        """Megatron's local layer with FlexFloor's attention, core attention, MoE layer and router."""
        spec = get_gpt_layer_local_spec(
            num_experts=model.num_experts,
            moe_grouped_gemm=False,
            qk_layernorm=self.qk_norm,
            normalization="RMSNorm",
        )
        attention = spec.submodules.self_attention
        attention.module = RolloutSelfAttention
        attention.submodules.core_attention = PackedCoreAttention
        use_elastic_moe(spec)
        return spec
