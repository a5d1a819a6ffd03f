"""Megatron's top-k router, made to work for zero tokens and exactly in float64.

Upstream infers a dimension by -1, which has no answer for zero tokens, and takes its softmax in
float32 whatever the logits are, which would leave float64 runs with float32 rounding.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from megatron.core.transformer.moe.router import TopKRouter
from torch import Tensor

from flexfloor.elastic.load import ExpertLoad


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
        """Probabilities and map, [T, E] both; softmax over the chosen logits in their own float64."""
        exact = logits.dtype is torch.float64 and self.score_function == "softmax"
        if not exact or self.config.moe_router_pre_softmax:
            return super().routing(logits, padding_mask)
        logits_TE = logits.view(-1, self.config.num_moe_experts)
        chosen_TK, expert_TK = logits_TE.topk(self.topk, dim=1)
        probs_TE = torch.zeros_like(logits_TE).scatter(1, expert_TK, chosen_TK.softmax(-1))
        return probs_TE, torch.zeros_like(logits_TE, dtype=torch.bool).scatter(1, expert_TK, True)
