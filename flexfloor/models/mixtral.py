"""Mixtral: few large experts, and heads that divide the hidden size.

Source: Jiang et al., "Mixtral of Experts", arXiv 2401.04088.
"""

from __future__ import annotations

from flexfloor.models.config import ModelConfig
from flexfloor.models.grouped_query_moe import GroupedQueryMoE
from flexfloor.models.moe_family import named_experts
from flexfloor.models.weights.weight_map import Row


class Mixtral(GroupedQueryMoE):
    """The Mixtral family."""

    def expert_rows(self, model: ModelConfig) -> tuple[Row, ...]:
        """The rows of router and experts under Mixtral's own names."""
        block = "model.layers.{layer}.block_sparse_moe"
        return named_experts(
            model, router=f"{block}.gate", expert=f"{block}.experts.{{expert}}", gate="w1", up="w3", down="w2"
        )
