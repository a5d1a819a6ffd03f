"""What one kind of training minimises: a token loss and how its values become one number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from flexfloor.train.batch import PackedBatch
from flexfloor.train.config import ActorConfig
from flexfloor.train.losses.grpo import grpo_loss
from flexfloor.train.losses.kl import kl_estimate
from flexfloor.train.losses.sft import sft_loss
from flexfloor.train.losses.token_loss import TokenLoss


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """A loss over response tokens, complete with its aggregation."""

    section: str
    """First part of its metrics' names, such as `actor`."""
    loss_name: str
    """Last part of the aggregated loss's name, such as `pg_loss`."""
    token_loss: Callable[[torch.Tensor, PackedBatch], TokenLoss]
    """From log-probabilities [N] and their batch to the loss of each token."""
    loss_agg_mode: str = "token-mean"
    max_response_length: int = 1
    """Tokens; only `seq-mean-token-sum-norm` divides by it."""
    temperature: float = 1.0
    """What logits are divided by: the one that the responses were sampled at."""
    entropy_coeff: float = 0.0
    """Weight of the aggregated entropy, taken off the loss."""
    kl_loss: Callable[[torch.Tensor, PackedBatch], torch.Tensor] | None = None
    """Like `token_loss`, to the KL to the reference at each token, [N]; None without a reference."""
    kl_loss_coef: float = 0.0
    """Weight of the aggregated KL, added to the loss."""


def grpo_objective(actor: ActorConfig, *, temperature: float, max_response_length: int) -> Objective:
    """Return the clipped GRPO loss as `actor` sets it, for responses sampled at `temperature`."""
    return Objective(
        section="actor",
        loss_name="pg_loss",
        token_loss=partial(
            grpo_loss, clip_ratio_low=actor.clip_ratio_low, clip_ratio_high=actor.clip_ratio_high
        ),
        loss_agg_mode=actor.loss_agg_mode,
        max_response_length=max_response_length,
        temperature=temperature,
        entropy_coeff=actor.entropy_coeff,
        kl_loss=partial(_kl_loss, kind=actor.kl_loss_type) if actor.use_kl_loss else None,
        kl_loss_coef=actor.kl_loss_coef,
    )


def _kl_loss(logprobs_N: torch.Tensor, batch: PackedBatch, kind: str) -> torch.Tensor:
    assert batch.ref_logprobs_N is not None, "samples without ref_logprobs"
    return kl_estimate(logprobs_N, batch.ref_logprobs_N, kind)


def sft_objective() -> Objective:
    """Return the mean negative log-likelihood over the tokens of demonstrations."""
    return Objective(section="sft", loss_name="loss", token_loss=sft_loss)
