"""What follows the attention in a layer of the fast path: a dense network, or routed and shared experts.

Shapes: T rows, H hidden, K experts of a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from flexfloor.elastic.exchange import RowCounts, gather_rows, return_rows
from flexfloor.elastic.expert_banks import ExpertBanks, Pair
from flexfloor.elastic.load import ExpertLoad
from flexfloor.elastic.moe_layer import ElasticMoELayer
from flexfloor.elastic.replica import Replica
from flexfloor.elastic.router import route_topk, router_logits
from flexfloor.rollout.kernels.plain import Linear, Operators
from flexfloor.rollout.linear import pack


class FastDense:
    """A SwiGLU network: that of a dense layer, or shared experts as one."""

    def __init__(self, mlp: Any, operators: Operators):
        """Args:
        mlp: Megatron's `MLP`.
        """
        self.operators = operators
        self.up, self.down = pack(mlp.linear_fc1.weight), pack(mlp.linear_fc2.weight)

    def __call__(self, normed_TH: Tensor, rows: RowCounts) -> Tensor:
        """[T, H], the part of this rank's columns; the rows of other ranks are not looked at."""
        return self.down(self.operators.swiglu(self.up(normed_TH)))


class LoopedExperts:
    """The experts of one layer that this rank holds, one after the other."""

    def __init__(self, operators: Operators) -> None:
        self.operators = operators
        self.experts: dict[int, tuple[Linear, Linear]] = {}

    def add(self, experts: Mapping[int, Pair]) -> None:
        """Compute these too, from copies of the weights that they have now where those are faster."""
        self.experts |= {expert: (pack(up), pack(down)) for expert, (up, down) in experts.items()}

    def __call__(self, hidden_TH: Tensor, probs_TK: Tensor, expert_TK: Tensor) -> Tensor:
        """[T, H]: see `swiglu_experts`."""
        return self.operators.experts(hidden_TH, probs_TK, expert_TK, self.experts)


class FastExperts:
    """The experts of one layer that this rank holds, for the rows of all ranks."""

    def __init__(
        self,
        layer: ElasticMoELayer,
        load: ExpertLoad,
        load_layer: int,
        replica: Replica,
        operators: Operators,
    ):
        """Args:
        load: counts the rows of each expert, as those of its MoE layer number `load_layer`.
        """
        self.replica = replica
        self.config, self.load, self.load_layer = layer.config, load, load_layer
        self.router, self.bias = layer.router.weight, layer.router.expert_bias
        grouped = layer.computes_in_groups
        self.mix = ExpertBanks(layer.config.num_moe_experts) if grouped else LoopedExperts(operators)
        self.host(layer.expert_weights())
        self.shared = FastDense(layer.shared_experts, operators) if layer.use_shared_expert else None

    def host(self, experts: Mapping[int, Pair]) -> None:
        """Compute these experts here, with weights [2F, H] and [H, F]."""
        self.mix.add(experts)

    def __call__(self, normed_TH: Tensor, rows: RowCounts) -> Tensor:
        """[T, H]: every row's routed experts, wherever they are, and its shared ones.

        It is this rank's part: the routed experts of its share of the replica's rows.
        """
        num_rows = normed_TH.size(0)
        mixed = self.replica.spread(self._routed(normed_TH[self.replica.share(num_rows)], rows), num_rows)
        return mixed if self.shared is None else mixed + self.shared(normed_TH, rows)

    def _routed(self, own_TH: Tensor, rows: RowCounts) -> Tensor:
        logits_TE = router_logits(own_TH, self.router, self.config)
        probs_TK, expert_TK = route_topk(logits_TE, self.config, self.bias)
        assert rows.can_reach(expert_TK), "a row chose an expert whose host has left"
        self.load.add(self.load_layer, expert_TK)
        if len(rows.counts) == 1:
            return self.mix(own_TH, probs_TK, expert_TK)
        return return_rows(self.mix(*gather_rows(own_TH, probs_TK, expert_TK, rows)), rows)
