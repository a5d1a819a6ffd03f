"""Megatron's token dispatcher for any hosts of experts: uneven numbers, guests, a smaller group.

Upstream's takes it that every rank holds as many experts as the others, with neighbouring numbers. Here the
experts that a group hosts are columns in the order of its ranks: a row goes to the nearest host of each
expert that it chose, and to no other. One collective tells numbers of rows, one carries rows, one their
probabilities, and one brings the results back; gradients flow through the last three.

Shapes: T rows of this rank, E experts, C columns (hosted experts by rank), K experts of a row, H hidden,
N = T * K pairs (row, column) of this rank, R pairs that this rank computes.

Invariants:
- Every pair of a row and an expert that it chose is computed once, by an active rank.
- A row has K experts, or none if it stands for nothing.
- A row's sum runs over its experts in the order of columns, whoever finished first.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

import torch
import torch.distributed as dist
from megatron.core.process_groups_config import ProcessGroupCollection
from megatron.core.tensor_parallel import all_to_all
from megatron.core.transformer.moe.token_dispatcher import MoETokenDispatcher
from megatron.core.transformer.transformer_config import TransformerConfig
from torch import Tensor

from flexfloor.elastic.exchange import exchange_integers
from flexfloor.elastic.placement import nearest_host


class PlacedDispatcher(MoETokenDispatcher):
    """Dispatches the rows of one MoE layer among the ranks of a group."""

    def __init__(
        self,
        config: TransformerConfig,
        hosted: Sequence[Sequence[int]],
        *,
        group: dist.ProcessGroup,
        tp_group: dist.ProcessGroup,
    ):
        """Args:
        hosted: experts that each rank of `group` computes, one at least; each of the layer's at some rank.
        """
        columns = [expert for experts in hosted for expert in experts]
        assert len(hosted) == group.size(), (hosted, group.size())
        is_whole = set(columns) == set(range(config.num_moe_experts)) and all(hosted)
        is_once = all(len(set(experts)) == len(experts) for experts in hosted)
        assert is_whole and is_once, f"{hosted} is not every expert, one or more a rank and each once there"
        groups = ProcessGroupCollection(ep=group, expt_tp=tp_group, tp_ep=group)
        super().__init__(config=config, pg_collection=groups)
        self.columns = columns
        self.bounds = list(pairwise(accumulate((len(experts) for experts in hosted), initial=0)))
        self.is_nearest = [
            rank
            == nearest_host([host for host, others in enumerate(hosted) if expert in others], group.rank())
            for rank, experts in enumerate(hosted)
            for expert in experts
        ]
        """By column: whether rows of this rank go there."""

    def dispatch_preprocess(
        self, tokens: Tensor, routing_map: Tensor, probs: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Rows [N, H] and probabilities [N] of all pairs, by column, of [..., H], [T, E] and [T, E]."""
        self._shape = tokens.shape
        columns_C = torch.tensor(self.columns, device=tokens.device)
        is_nearest_C = torch.tensor(self.is_nearest, device=tokens.device)
        column_N, self._row_N = (routing_map[:, columns_C] & is_nearest_C).T.nonzero(as_tuple=True)
        assert len(column_N) == routing_map.sum(), "a row chose an expert that no active rank hosts"
        is_whole = len(column_N) == len(routing_map) * self.config.moe_router_topk
        self._routed_T = None if is_whole else routing_map.any(-1)
        self._counts = torch.bincount(column_N, minlength=len(self.columns)).tolist()
        tokens_TH = tokens.reshape(-1, tokens.size(-1))
        return tokens_TH[self._row_N], probs[self._row_N, columns_C[column_N]]

    def token_dispatch(self, hidden_states: Tensor, probs: Tensor) -> tuple[Tensor, Tensor]:
        """Rows [R, H] and probabilities [R] that this rank computes, by sender and then column."""
        told = exchange_integers(self._counts, self.ep_group, hidden_states.device)
        first, last = self.bounds[self.ep_group.rank()]
        self._arriving = [counts[first:last] for counts in told]
        self._sent = [sum(self._counts[first:last]) for first, last in self.bounds]
        self._received = [sum(counts) for counts in self._arriving]
        hidden, shares = (
            all_to_all(self.ep_group, part, self._received, self._sent) for part in (hidden_states, probs)
        )
        return hidden, shares

    def dispatch_postprocess(self, hidden_states: Tensor, probs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Rows [R, H] by column and then sender, the number for each hosted expert, and probabilities [R]."""
        arriving_PC = torch.tensor(self._arriving, device=hidden_states.device)
        expert = torch.arange(arriving_PC.size(1), device=hidden_states.device).repeat(len(arriving_PC))
        self._order_R = expert.repeat_interleave(arriving_PC.flatten()).argsort(stable=True)
        return hidden_states[self._order_R], arriving_PC.sum(0), probs[self._order_R]

    def combine_preprocess(self, hidden_states: Tensor) -> Tensor:
        """Results [R, H] in the order in which the rows came."""
        return hidden_states[self._order_R.argsort()]

    def token_combine(self, hidden_states: Tensor) -> Tensor:
        """Results [N, H] of this rank's pairs, by column."""
        return all_to_all(self.ep_group, hidden_states, self._sent, self._received)

    def combine_postprocess(self, hidden_states: Tensor) -> Tensor:
        """Each row's sum over its experts, in the shape of the tokens."""
        by_row = hidden_states[self._row_N.argsort(stable=True)]
        num_topk, width = self.config.moe_router_topk, self._shape[-1]
        sums = by_row.view(-1, num_topk, width).sum(1)
        if self._routed_T is not None:
            whole_TH = sums.new_zeros(len(self._routed_T), width)
            whole_TH[self._routed_T] = sums
            sums = whole_TH
        return sums.view(self._shape)
