"""Megatron's top-k router, made to work for zero tokens and exactly in float64.

Upstream infers a dimension by -1, which has no answer for zero tokens, and takes its scores in float32
whatever the logits are, which would leave float64 runs with float32 rounding.

Shapes: T tokens, E experts, K experts of a token, G groups of experts.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from megatron.core.transformer.moe.router import TopKRouter
from megatron.core.transformer.transformer_config import TransformerConfig
from torch import Tensor

from flexfloor.elastic.load import ExpertLoad

ROUTER_TYPES = {"fp32": torch.float32, "fp64": torch.float64}
"""By Megatron's `moe_router_dtype`."""


def router_logits(
    hidden: Tensor, weight_EH: Tensor, config: TransformerConfig, bias_E: Tensor | None = None
) -> Tensor:
    """[..., E] of hidden states [..., H], multiplied in the router's type where that is the wider one."""
    dtype = torch.promote_types(hidden.dtype, ROUTER_TYPES.get(config.moe_router_dtype, hidden.dtype))
    return F.linear(hidden.to(dtype), weight_EH.to(dtype), None if bias_E is None else bias_E.to(dtype))


def route_topk(
    logits_TE: Tensor, config: TransformerConfig, expert_bias_E: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Shares [T, K] of the logits' type and expert numbers [T, K] of each row's top-k experts.

    Args:
        logits_TE: [T, E]; scored in float32 at least.
        config: scores (softmax over all experts, over the chosen ones, or sigmoid), groups and scaling.
        expert_bias_E: counts in the choice and not in the share.
    """
    dtype = torch.promote_types(logits_TE.dtype, torch.float32)
    scores_TE = _scores(logits_TE.to(dtype), config)
    wanted_TE = scores_TE if expert_bias_E is None else scores_TE + expert_bias_E
    if config.moe_router_group_topk:
        wanted_TE = _best_groups(wanted_TE, config)
    expert_TK = wanted_TE.topk(config.moe_router_topk, dim=1).indices
    shares_TK = scores_TE.gather(1, expert_TK)
    if config.moe_router_score_function == "sigmoid":
        if config.moe_router_topk > 1:
            shares_TK = shares_TK / (shares_TK.sum(-1, keepdim=True) + 1e-20)
    elif not config.moe_router_pre_softmax:
        shares_TK = shares_TK.softmax(-1)
    return (shares_TK * (config.moe_router_topk_scaling_factor or 1.0)).to(logits_TE.dtype), expert_TK


def _scores(logits_TE: Tensor, config: TransformerConfig) -> Tensor:
    if config.moe_router_score_function == "sigmoid":
        return logits_TE.sigmoid()
    return logits_TE.softmax(-1) if config.moe_router_pre_softmax else logits_TE


def _best_groups(scores_TE: Tensor, config: TransformerConfig) -> Tensor:
    """[T, E] with -inf outside of each token's best groups, by the sum of their best experts."""
    groups, taken = config.moe_router_num_groups, config.moe_router_group_topk
    by_group_TGE = scores_TE.unflatten(1, (groups, config.num_moe_experts // groups))
    counted = _counted_experts(config) or config.moe_router_topk // taken
    group_scores_TG = by_group_TGE.topk(counted, dim=-1).values.sum(-1)
    outside_TG = torch.ones_like(group_scores_TG, dtype=torch.bool)
    outside_TG.scatter_(1, group_scores_TG.topk(taken, dim=1).indices, False)
    return by_group_TGE.masked_fill(outside_TG[..., None], float("-inf")).flatten(1)


def _counted_experts(config: TransformerConfig) -> int | None:
    """Best experts of a group whose scores make its own; None = Megatron's rule. A user's family has none."""
    return getattr(config, "moe_router_group_experts", None)


class ElasticRouter(TopKRouter):
    """Top-k router: [S, 1, H] hidden states to ([T, E] probabilities, [T, E] routing map)."""

    load: ExpertLoad | None = None
    """What counts the routed rows, while somebody wants to know."""
    load_layer = 0
    """Index of this router's MoE layer in `load`."""

    def forward(self, input: Tensor, padding_mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Route, and count the rows when asked to.

        Args:
            input: [S, 1, H].
            padding_mask: [S, 1], true for rows that stand for nothing: no expert gets them.
        """
        probs, routing_map = super().forward(input, padding_mask)
        if padding_mask is not None:
            stands_T1 = ~padding_mask.reshape(-1, 1)
            probs, routing_map = probs * stands_T1, routing_map & stands_T1
        if self.load is not None:
            self.load.add(self.load_layer, routing_map.nonzero()[:, 1])
        return probs, routing_map

    @torch.no_grad()
    def widen_buffers(self) -> None:
        """Keep biases of experts and numbers of their rows in float32 at least: bfloat16 rounds them."""
        for buffer in self.buffers(recurse=False):
            buffer.data = buffer.to(torch.promote_types(buffer.dtype, torch.float32))

    def gating(self, input: Tensor) -> Tensor:
        """Router logits [..., E] of hidden states [..., H]."""
        if input.numel():
            return super().gating(input)
        return router_logits(input, self.weight, self.config, self.bias)

    def routing(self, logits: Tensor, padding_mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Probabilities and map, [T, E] both.

        Upstream's own but for float64, for no tokens at all and for groups scored by another rule.
        """
        if logits.numel() and logits.dtype is not torch.float64 and _counted_experts(self.config) is None:
            return super().routing(logits, padding_mask)
        logits_TE = logits.view(-1, self.config.num_moe_experts)
        shares_TK, expert_TK = route_topk(logits_TE, self.config, self.expert_bias)
        probs_TE = torch.zeros_like(logits_TE).scatter(1, expert_TK, shares_TK)
        routed_TE = torch.zeros_like(logits_TE, dtype=torch.bool).scatter(1, expert_TK, True)
        self._apply_expert_bias(routed_TE, padding_mask)
        return probs_TE, routed_TE

    def _apply_expert_bias(self, routing_map: Tensor, padding_mask: Tensor | None = None) -> None:
        # Upstream's own is compiled, which costs a compiler run and, on a CPU host, a C++ compiler.
        if self.enable_expert_bias and torch.is_grad_enabled():
            with torch.no_grad():
                if padding_mask is not None:
                    routing_map = routing_map & ~padding_mask.reshape(-1, 1)
                self.local_tokens_per_expert += routing_map.sum(dim=0)
