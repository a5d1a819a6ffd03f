"""The rollout pass through Megatron's own modules: always right, the measure of the fast path.

Invariants:
- Between passes the model is as training knows it, also when ranks have left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.distributed as dist
from megatron.core.models.gpt.gpt_model import GPTModel
from torch import Tensor

from flexfloor.elastic.exchange import RowCounts
from flexfloor.elastic.hosting import HostedLayer, computing_as, hosted_layer
from flexfloor.elastic.load import ExpertLoad
from flexfloor.elastic.moe_layer import counting, moe_layers
from flexfloor.elastic.placement import Placement
from flexfloor.elastic.replica import Replica
from flexfloor.rollout.context import RolloutContext
from flexfloor.rollout.whole_rows import whole_rows


class ReferencePath:
    """Runs `GPTModel.forward` with the rollout's context."""

    def __init__(self, model: GPTModel, load: ExpertLoad, replica: Replica):
        """Args:
        load: counts the rows of each expert.
        replica: of the ranks that the model's heads, columns and words are spread over.
        """
        self.model, self.load, self.replica = model, load, replica
        self.guests: dict[int, Sequence[tuple[Tensor, ...]]] = {}
        self.hosted: list[HostedLayer] = []

    def place(
        self,
        placement: Placement,
        group: dist.ProcessGroup,
        guests: Mapping[int, Sequence[tuple[Tensor, ...]]],
    ) -> None:
        """Compute under `placement` in `group` from now on.

        Args:
            guests: those that came with it, by expert, for each MoE layer: its parameters.
        """
        self.guests.update(guests)
        hosted = [placement.hosted_by(position) for position in range(group.size())]
        self.hosted = [
            hosted_layer(layer, hosted, {expert: each[index] for expert, each in self.guests.items()}, group)
            for index, layer in enumerate(moe_layers(self.model))
        ]

    # Not inference_mode: Megatron caches rotary angles, and training could not use cached ones made there.
    @torch.no_grad()
    def logits(self, context: RolloutContext, rows: RowCounts) -> Tensor:
        """[wanted, V] logits of the pass's last rows."""
        ids, positions = context.rows.input_ids_T[None], context.rows.position_ids_T[None]
        rows_of_all = whole_rows(self.model, self.replica)
        with counting(self.model, self.load), computing_as(self.hosted), rows_of_all:
            logits = self.model(ids, positions, None, inference_context=context, runtime_gather_output=True)
        return logits[0, context.rows.last_rows]
