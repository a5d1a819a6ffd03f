"""What the shipped families have in common; each adds its attention.

Routing takes a token's top-k experts by their scores. With softmax scores and `norm_topk_prob` they are
divided by their sum, and that is the softmax over the chosen logits alone: Megatron calls it
`moe_router_pre_softmax=False`, and its `True` never divides.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules
from megatron.core.transformer.transformer_config import TransformerConfig

from flexfloor.models.block_spec import block_spec
from flexfloor.models.config import ModelConfig
from flexfloor.models.megatron_config import MoEConfig


class MoEFamily(ABC):
    """Base of the families."""

    config_class: ClassVar[type[TransformerConfig]] = MoEConfig

    @abstractmethod
    def attention_settings(self, model: ModelConfig) -> dict[str, Any]:
        """Fields of Megatron's configuration that describe the attention."""

    @abstractmethod
    def adapt_attention(self, attention: ModuleSpec) -> None:
        """Put FlexFloor's modules into Megatron's specification of the attention."""

    def transformer_config(self, model: ModelConfig, *, ep_size: int) -> TransformerConfig:
        """Megatron's configuration for `model` with its experts spread over `ep_size` ranks."""
        dtype = getattr(torch, model.dtype)
        return self.config_class(
            num_layers=model.num_layers,
            hidden_size=model.hidden_size,
            **self.attention_settings(model),
            **_expert_settings(model),
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

    def block_spec(self, config: TransformerConfig) -> TransformerBlockSubmodules:
        """Megatron's local layers with FlexFloor's attention, core attention, MoE layer and router."""
        return block_spec(config, self.adapt_attention)


def _expert_settings(model: ModelConfig) -> dict[str, Any]:
    dense = model.first_k_dense_replace
    return dict(
        ffn_hidden_size=model.ffn_hidden_size if dense else model.moe_ffn_hidden_size,
        moe_layer_freq=[0] * dense + [1] * model.num_moe_layers,
        moe_ffn_hidden_size=model.moe_ffn_hidden_size,
        moe_shared_expert_intermediate_size=model.shared_ffn_hidden_size,
        num_moe_experts=model.num_experts,
        moe_router_topk=model.moe_router_topk,
        moe_router_pre_softmax=model.moe_router_score_function == "softmax" and not model.norm_topk_prob,
        moe_router_score_function=model.moe_router_score_function,
        moe_router_num_groups=model.moe_router_num_groups,
        moe_router_group_topk=model.moe_router_group_topk,
        moe_router_group_experts=model.moe_router_group_experts,
        moe_router_topk_scaling_factor=model.moe_router_topk_scaling_factor,
        moe_router_enable_expert_bias=model.moe_router_enable_expert_bias,
        moe_router_bias_update_rate=model.moe_router_bias_update_rate,
        moe_router_load_balancing_type="none",
        moe_token_dispatcher_type="alltoall",
        moe_grouped_gemm=False,
    )
