"""Negative log-likelihood of demonstrated tokens."""

from __future__ import annotations

import torch

from flexfloor.train.batch import PackedBatch
from flexfloor.train.losses.token_loss import TokenLoss


def sft_loss(logprobs_N: torch.Tensor, batch: PackedBatch) -> TokenLoss:
    """Return -log pi of each response token."""
    del batch
    return TokenLoss(loss_N=-logprobs_N)
