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

from flexfloor.errors import ConfigError
from flexfloor.models.block_spec import block_spec
from flexfloor.models.config import ModelConfig
from flexfloor.models.megatron_config import MoEConfig
from flexfloor.models.weights.fusion import OfExperts, Plain, Stacked, Vocabulary
from flexfloor.models.weights.weight_map import Row, WeightMap


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
            # A rounded logit picks another expert among near ties; None = the model's own type.
            moe_router_dtype="fp32" if dtype is torch.bfloat16 else None,
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

    def attention_rows(self, model: ModelConfig) -> tuple[Row, ...]:
        """The attention's rows of the weight map."""
        raise ConfigError(
            f"model.family = {model.family!r}: it has no attention_rows, which name its weights"
        )

    def expert_rows(self, model: ModelConfig) -> tuple[Row, ...]:
        """The rows of router and routed experts, in the names that most families have."""
        return named_experts(
            model,
            router="model.layers.{layer}.mlp.gate",
            expert="model.layers.{layer}.mlp.experts.{expert}",
            gate="gate_proj",
            up="up_proj",
            down="down_proj",
        )

    def weight_map(self, model: ModelConfig) -> WeightMap:
        """Hugging Face's names of the weights of `model`."""
        return WeightMap(
            rows=(*_OUTER_ROWS, *self.attention_rows(model), *_DENSE_ROWS, *self.expert_rows(model)),
            ignored=("model.layers.{layer}.self_attn.rotary_emb.inv_freq", "model.rotary_emb.inv_freq"),
            tied=("lm_head.weight", "model.embed_tokens.weight"),
        )


_OUTER_ROWS = (
    Row(megatron="embedding.word_embeddings.weight", hf=Vocabulary("model.embed_tokens.weight"), tp_dim=0),
    Row(megatron="output_layer.weight", hf=Vocabulary("lm_head.weight"), tp_dim=0),
    Row(megatron="decoder.final_layernorm.weight", hf=Plain("model.norm.weight")),
    Row(
        megatron="decoder.layers.{layer}.input_layernorm.weight",
        hf=Plain("model.layers.{layer}.input_layernorm.weight"),
    ),
    Row(
        megatron="decoder.layers.{layer}.pre_mlp_layernorm.weight",
        hf=Plain("model.layers.{layer}.post_attention_layernorm.weight"),
    ),
)


def dense_rows(megatron: str, hf: str) -> tuple[Row, ...]:
    """The two rows of a gated network: Megatron stacks its gate and up projections."""
    halves = Stacked((f"{hf}.gate_proj.weight", f"{hf}.up_proj.weight"))
    return (
        Row(megatron=f"{megatron}.linear_fc1.weight", hf=halves, tp_dim=0, tp_parts=2),
        Row(megatron=f"{megatron}.linear_fc2.weight", hf=Plain(f"{hf}.down_proj.weight"), tp_dim=1),
    )


_DENSE_ROWS = (
    *dense_rows("decoder.layers.{layer}.mlp", "model.layers.{layer}.mlp"),
    *dense_rows("decoder.layers.{layer}.mlp.shared_experts", "model.layers.{layer}.mlp.shared_experts"),
)


def named_experts(
    model: ModelConfig, *, router: str, expert: str, gate: str, up: str, down: str
) -> tuple[Row, ...]:
    """The rows of router and experts of a family that calls them so in files of the hub.

    transformers 5 has the same names for all families in memory, and a tensor for all experts of a layer.
    """
    layer, own = "model.layers.{layer}.mlp", "decoder.layers.{layer}.mlp"
    halves = Stacked((f"{expert}.{gate}.weight", f"{expert}.{up}.weight"))
    return (
        Row(
            megatron=f"{own}.router.weight",
            hf=Plain(f"{router}.weight"),
            fused=Plain(f"{layer}.gate.weight"),
        ),
        Row(
            megatron=f"{own}.router.expert_bias",
            hf=Plain(f"{router}.e_score_correction_bias"),
            fused=Plain(f"{layer}.gate.e_score_correction_bias"),
        ),
        Row(
            megatron=f"{own}.experts.local_experts.{{expert}}.linear_fc1.weight",
            hf=halves,
            fused=OfExperts(f"{layer}.experts.gate_up_proj", model.num_experts),
            tp_dim=0,
            tp_parts=2,
        ),
        Row(
            megatron=f"{own}.experts.local_experts.{{expert}}.linear_fc2.weight",
            hf=Plain(f"{expert}.{down}.weight"),
            fused=OfExperts(f"{layer}.experts.down_proj", model.num_experts),
            tp_dim=1,
        ),
    )


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
