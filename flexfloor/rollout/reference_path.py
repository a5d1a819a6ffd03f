"""The rollout pass through Megatron's own modules: always right, the measure of the fast path."""

from __future__ import annotations

import torch
from megatron.core.models.gpt.gpt_model import GPTModel
from torch import Tensor

from flexfloor.elastic.exchange import RowCounts
from flexfloor.elastic.load import ExpertLoad
from flexfloor.elastic.moe_layer import counting
from flexfloor.rollout.context import RolloutContext


class ReferencePath:
    """Runs `GPTModel.forward` with the rollout's context."""

    def __init__(self, model: GPTModel, load: ExpertLoad):
        """Args:
        load: counts the rows of each expert.
        """
        self.model, self.load = model, load

    # Not inference_mode: Megatron caches rotary angles, and training could not use cached ones made there.
    @torch.no_grad()
    def logits(self, context: RolloutContext, rows: RowCounts) -> Tensor:
        """[wanted, V] logits of the pass's last rows."""
        ids, positions = context.rows.input_ids_T[None], context.rows.position_ids_T[None]
        with counting(self.model, self.load):
            logits = self.model(ids, positions, None, inference_context=context, runtime_gather_output=True)
        return logits[0, context.rows.last_rows]
