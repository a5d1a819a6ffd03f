"""The MoE layer of every family: Megatron's, with the routed experts reachable by global number.

Training and the reference rollout path run Megatron's own dispatcher and experts, the latter others once
ranks have left (`hosting`), and with several ranks to a replica on the share of each (`replica`). The fast
rollout path reads the same parameters through `expert_weights`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from megatron.core.process_groups_config import ProcessGroupCollection
from megatron.core.transformer.moe.moe_layer import MoELayer, MoESubmodules
from megatron.core.transformer.transformer_config import TransformerConfig
from torch import Tensor, nn

from flexfloor import heartbeat
from flexfloor.elastic.expert_layout import is_numbered, weights_by_place
from flexfloor.elastic.grouped_experts import GroupedExperts
from flexfloor.elastic.load import ExpertLoad
from flexfloor.elastic.replica import Replica
from flexfloor.elastic.rows_dispatcher import RowsDispatcher


class ElasticMoELayer(MoELayer):
    """Megatron's MoE layer."""

    replica: Replica | None = None
    """Whose ranks share out the rows before routed experts, while each of them has all rows."""

    def __init__(
        self,
        config: TransformerConfig,
        submodules: MoESubmodules,
        *,
        groups: ProcessGroupCollection,
        pg_collection: ProcessGroupCollection | None = None,
        **kwargs: Any,
    ):
        """Args:
        groups: process groups, from the spec; 0.16 gives this class no `pg_collection`, 0.19 the same one.
        kwargs: what the version of Megatron passes on besides (0.19: `is_mtp_layer`, `name`).
        """
        assert pg_collection is None or pg_collection is groups, "the layer and its spec name other groups"
        super().__init__(config, submodules, pg_collection=groups, **kwargs)
        if config.sequence_parallel and config.moe_token_dispatcher_type == "alltoall":
            held = (self.num_local_experts, self.local_expert_indices)
            self.token_dispatcher = RowsDispatcher(*held, config=config, pg_collection=groups)

    def forward(self, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Megatron's own, with a beat on the way forward and one on the way back: a pass may be long."""
        heartbeat.beat()
        if hidden_states.requires_grad:
            hidden_states.register_hook(_beat_on_the_way_back)
        if self.replica is None:
            return super().forward(hidden_states, *args, **kwargs)
        num_rows = hidden_states.size(0)
        own, bias = super().forward(hidden_states[self.replica.share(num_rows)], *args, **kwargs)
        whole = self.replica.summed(self.replica.spread(own, num_rows))
        shared = super().shared_experts_compute(hidden_states)
        return (whole if shared is None else whole + shared), bias

    def shared_experts_compute(self, hidden_states: Tensor) -> Tensor | None:
        """Megatron's own; where rows are shared out, `forward` calls it for all of them."""
        return super().shared_experts_compute(hidden_states) if self.replica is None else None

    def expert_weights(self) -> dict[int, tuple[Tensor, ...]]:
        """Global expert number to its parameters, in Megatron's order, for the experts held here.

        Of SwiGLU without bias these are gate-and-up [2F, H] and down [H, F].
        """
        return dict(zip(self.local_expert_indices, weights_by_place(self.experts), strict=True))

    @property
    def computes_in_groups(self) -> bool:
        """Whether the experts of this layer are trained in grouped products, not one by one."""
        return is_numbered(self.experts) or isinstance(self.experts, GroupedExperts)


def _beat_on_the_way_back(_: Tensor) -> None:
    heartbeat.beat()


def moe_layers(model: nn.Module) -> list[ElasticMoELayer]:
    """The MoE layers of `model`, in order."""
    return [module for module in model.modules() if isinstance(module, ElasticMoELayer)]


@contextmanager
def counting(model: nn.Module, load: ExpertLoad) -> Iterator[None]:
    """Count into `load` the rows that the routers of `model` route in the block."""
    layers = moe_layers(model)
    for index, layer in enumerate(layers):
        layer.router.load, layer.router.load_layer = load, index
    try:
        yield
    finally:
        for layer in layers:
            layer.router.load = None
