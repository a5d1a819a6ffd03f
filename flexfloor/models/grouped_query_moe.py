"""Families of grouped-query attention, some with normalised queries and keys."""

from __future__ import annotations

from typing import Any, ClassVar

from megatron.core.transformer.spec_utils import ModuleSpec

from flexfloor.models.attention import PackedCoreAttention, RolloutSelfAttention
from flexfloor.models.config import ModelConfig
from flexfloor.models.moe_family import MoEFamily


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
