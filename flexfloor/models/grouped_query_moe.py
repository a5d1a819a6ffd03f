"""Families of grouped-query attention, some with normalised queries and keys."""

from __future__ import annotations

from typing import Any, ClassVar

from megatron.core.transformer.spec_utils import ModuleSpec

from flexfloor.models.attention import PackedCoreAttention, RolloutSelfAttention
from flexfloor.models.config import ModelConfig
from flexfloor.models.moe_family import MoEFamily
from flexfloor.models.weights.fusion import Plain, QueryKeyValue
from flexfloor.models.weights.weight_map import Row


class GroupedQueryMoE(MoEFamily):
    """Base of Mixtral and Qwen3-MoE."""

    qk_norm: ClassVar[bool] = False
    """Whether each head's query and key are RMS-normalised before they are rotated."""

    def attention_settings(self, model: ModelConfig) -> dict[str, Any]:
        """Heads of the query and of keys and values."""
        return dict(
            num_attention_heads=model.num_attention_heads,
            num_query_groups=model.num_query_groups,
            kv_channels=model.channels_per_head,
            qk_layernorm=self.qk_norm,
        )

    def adapt_attention(self, attention: ModuleSpec) -> None:
        """Attention over packed rows or the rollout's cache."""
        attention.module = RolloutSelfAttention
        attention.submodules.core_attention = PackedCoreAttention

    def attention_rows(self, model: ModelConfig) -> tuple[Row, ...]:
        """Queries, keys and values in one tensor, the output, and the norms of families that have them."""
        own, hf = "decoder.layers.{layer}.self_attention", "model.layers.{layer}.self_attn"
        mixed = QueryKeyValue(
            query=f"{hf}.q_proj.weight",
            key=f"{hf}.k_proj.weight",
            value=f"{hf}.v_proj.weight",
            num_heads=model.num_attention_heads,
            num_groups=model.num_query_groups,
            head_dim=model.channels_per_head,
        )
        return (
            Row(megatron=f"{own}.linear_qkv.weight", hf=mixed, tp_dim=0),
            Row(megatron=f"{own}.linear_proj.weight", hf=Plain(f"{hf}.o_proj.weight"), tp_dim=1),
            Row(megatron=f"{own}.q_layernorm.weight", hf=Plain(f"{hf}.q_norm.weight")),
            Row(megatron=f"{own}.k_layernorm.weight", hf=Plain(f"{hf}.k_norm.weight")),
        )
