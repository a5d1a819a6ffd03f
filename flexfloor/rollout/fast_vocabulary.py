"""Words to rows and rows to logits on the fast path; with several ranks to a replica each holds some words.

Shapes: T rows, H hidden, V words, W words of this rank.
"""

from __future__ import annotations

import torch.nn.functional as F
from megatron.core.models.gpt.gpt_model import GPTModel
from torch import Tensor

from flexfloor.elastic.replica import Replica
from flexfloor.rollout.linear import pack


class FastEmbedding:
    """Looks up the words of a pass."""

    def __init__(self, model: GPTModel, replica: Replica):
        self.weight_WH, self.replica = model.embedding.word_embeddings.weight, replica

    def __call__(self, ids_T: Tensor) -> Tensor:
        """[T, H]."""
        if self.replica.size == 1:
            return F.embedding(ids_T, self.weight_WH)
        own_T = ids_T - self.replica.index * self.weight_WH.size(0)
        elsewhere_T = (own_T < 0) | (own_T >= self.weight_WH.size(0))
        found_TH = F.embedding(own_T.masked_fill(elsewhere_T, 0), self.weight_WH)
        return self.replica.summed(found_TH.masked_fill(elsewhere_T[:, None], 0))


class FastOutput:
    """Logits of rows; made when a rollout begins."""

    def __init__(self, model: GPTModel, replica: Replica):
        tied = model.share_embeddings_and_output_weights
        weight_WH = model.shared_embedding_or_output_weight() if tied else model.output_layer.weight
        self.replica, self.num_tokens = replica, getattr(model, "num_tokens", None)
        # Rows of a rank that has no token among its words are computed and cut off.
        self.product = pack(weight_WH[: self.num_tokens] if replica.size == 1 else weight_WH)

    def __call__(self, hidden_TH: Tensor) -> Tensor:
        """[T, V] of normalised rows, cut to what stands for tokens."""
        return self.replica.joined(self.product(hidden_TH), 1)[:, : self.num_tokens]
