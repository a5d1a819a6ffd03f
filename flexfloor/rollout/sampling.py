"""Choosing one token per sequence, as a function of its logits and of counter-based noise.

The Gumbel-max trick in the form of an exponential race: with independent exponential arrival times
E_v, the token that maximises p_v / E_v is distributed as p (Gumbel 1954; Maddison et al., "A* Sampling",
2014; log turns the race into logits plus Gumbel noise). Rounding flips a token only where two tokens
race to a near tie, far more rarely than when a cumulative sum is inverted.

Shapes: B sequences, V vocabulary.

Invariants:
- The token depends on its own logits row and key alone, never on the rest of the batch.
- The log-probability is that of the whole distribution at the sampling temperature, which is what
  the trainer computes, also where top-p or top-k narrow what may be drawn.
"""

from __future__ import annotations

import torch
from torch import Tensor

from flexfloor.rollout.config import SamplingConfig
from flexfloor.rollout.noise import uniform


def sample(
    logits_BV: Tensor, keys_B: Tensor, positions_B: Tensor, sampling: SamplingConfig
) -> tuple[Tensor, Tensor]:
    """Draw a token for each sequence.

    Args:
        logits_BV: [B, V].
        keys_B: [B] int64 key of each response (`noise.sequence_key`).
        positions_B: [B] int64 index of the drawn token within its response.
        sampling: temperature, top-p and top-k; temperature 0 takes the most likely token.

    Returns: token ids [B] int64 and their log-probabilities [B] float64.
    """
    scaled_BV = logits_BV.double()
    if sampling.temperature:
        scaled_BV = scaled_BV / sampling.temperature
    logprobs_BV = scaled_BV.log_softmax(-1)
    token_B = (
        _race(logprobs_BV, keys_B, positions_B, sampling) if sampling.temperature else scaled_BV.argmax(-1)
    )
    return token_B, logprobs_BV.gather(1, token_B[:, None])[:, 0]


def _race(logprobs_BV: Tensor, keys_B: Tensor, positions_B: Tensor, sampling: SamplingConfig) -> Tensor:
    probs_BV = logprobs_BV.exp()
    if sampling.top_k:
        probs_BV = keep_top_k(probs_BV, sampling.top_k)
    if sampling.top_p < 1.0:
        probs_BV = keep_top_p(probs_BV, sampling.top_p)
    arrival_BV = uniform(keys_B, positions_B, probs_BV.size(1)).log_().neg_()
    return probs_BV.div_(arrival_BV).argmax(-1)


def keep_top_k(probs_BV: Tensor, top_k: int) -> Tensor:
    """Zero all but the `top_k` largest probabilities of each row; ties at the edge are kept."""
    edge_B1 = probs_BV.topk(min(top_k, probs_BV.size(1)), dim=-1).values[:, -1:]
    return torch.where(probs_BV >= edge_B1, probs_BV, 0.0)


def keep_top_p(probs_BV: Tensor, top_p: float) -> Tensor:
    """Zero all but the fewest largest probabilities that reach `top_p` of the row's mass."""
    sorted_BV, order_BV = probs_BV.sort(dim=-1, descending=True, stable=True)
    before_BV = sorted_BV.cumsum(-1) - sorted_BV
    kept_BV = before_BV < top_p * sorted_BV.sum(-1, keepdim=True)
    return torch.zeros_like(probs_BV).scatter(1, order_BV, torch.where(kept_BV, sorted_BV, 0.0))
