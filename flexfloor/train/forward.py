"""One micro-batch through the training model: log-probabilities and entropy of its response tokens."""

from __future__ import annotations

import torch

from flexfloor.models.forward import packed_logits
from flexfloor.train.batch import PackedBatch
from flexfloor.train.logprobs import scaled_logits, token_entropy, token_logprobs


def forward_logprobs(
    model: torch.nn.Module, batch: PackedBatch, temperature: float, entropy_gradient: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (log pi, entropy) of each response token, [N] and [N], nats.

    All ranks of an expert group call this together; a batch without rows takes part and yields N = 0.
    """
    logits_TV = packed_logits(model, batch.input_ids_T, batch.position_ids_T, batch.cu_seqlens)
    logits_NV = scaled_logits(logits_TV, batch.rows_N, temperature)
    with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
        entropy_N = token_entropy(logits_NV)
    return token_logprobs(logits_NV, batch.labels_N), entropy_N
