"""Megatron's top-k router, made to work for zero tokens and exactly in float64.

Upstream infers a dimension by -1, which has no answer for zero tokens, and takes its softmax in
float32 whatever the logits are, which would leave float64 runs with float32 rounding.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from megatron.core.transformer.moe.router import TopKRouter
from megatron.core.transformer.transformer_config import TransformerConfig
from torch import Tensor

from flexfloor.elastic.load import ExpertLoad


def softmax_topk(logits_TE: Tensor, config: TransformerConfig) -> tuple[Tensor, Tensor]:
    """Probabilities [T, K] of the logits' type and expert numbers [T, K] of each row's top-k experts.

    The softmax runs over all experts with `moe_router_pre_softmax`, else over the chosen ones; in
    float32 at least.
    """
    dtype = torch.promote_types(logits_TE.dtype, torch.float32)
    if config.moe_router_pre_softmax:
        probs_TK, expert_TK = logits_TE.softmax(-1, dtype=dtype).topk(config.moe_router_topk, dim=1)
    else:
        chosen_TK, expert_TK = logits_TE.topk(config.moe_router_topk, dim=1)
        probs_TK = chosen_TK.softmax(-1, dtype=dtype)
    return probs_TK.to(logits_TE.dtype), expert_TK


class ElasticRouter(TopKRouter):
    """Top-k router: [S, 1, H] hidden states to ([T, E] probabilities, [T, E] routing map)."""

    load: ExpertLoad | None = None
    """What counts the routed rows, while somebody wants to know."""
    load_layer = 0
    """Index of this router's MoE layer in `load`."""

    def forward(self, input: Tensor, padding_mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Route, and count the rows when asked to."""
        probs, routing_map = super().forward(input, padding_mask)
        if self.load is not None:
            self.load.add(self.load_layer, routing_map.nonzero()[:, 1])
        return probs, routing_map

    def gating(self, input: Tensor) -> Tensor:
        """Router logits [..., E] of hidden states [..., H]."""
        if input.numel():
            return super().gating(input)
        return F.linear(input, self.weight, self.bias)

    def routing(self, logits: Tensor, padding_mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Probabilities and map, [T, E] both; the softmax of float64 logits is taken in float64."""
        grouped = self.config.moe_router_num_groups is not None
        if logits.dtype is not torch.float64 or self.score_function != "softmax" or grouped:
            return super().routing(logits, padding_mask)
        logits_TE = logits.view(-1, self.config.num_moe_experts)
        probs_TK, expert_TK = softmax_topk(logits_TE, self.config)
        probs_TK = probs_TK * (self.config.moe_router_topk_scaling_factor or 1.0)
        probs_TE = torch.zeros_like(logits_TE).scatter(1, expert_TK, probs_TK)
        return probs_TE, torch.zeros_like(logits_TE, dtype=torch.bool).scatter(1, expert_TK, True)
