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

CPU_BLOCK = 16 * 1024
"""Logits that a CPU works on at a time, so that what it computes from them stays in its cache."""


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
    B, V = logits_BV.shape
    block = max(1, CPU_BLOCK // V) if logits_BV.device.type == "cpu" else max(1, B)
    rows = zip(logits_BV.split(block), keys_B.split(block), positions_B.split(block), strict=True)
    drawn = [_sample_block(*block_rows, sampling) for block_rows in rows]
    tokens, logprobs = zip(*drawn, strict=True)
    return torch.cat(tokens), torch.cat(logprobs)


def _sample_block(
    logits_BV: Tensor, keys_B: Tensor, positions_B: Tensor, sampling: SamplingConfig
) -> tuple[Tensor, Tensor]:
    scaled_BV = logits_BV.double()
    if sampling.temperature and sampling.temperature != 1.0:
        scaled_BV = scaled_BV / sampling.temperature
    scaled_BV = scaled_BV - scaled_BV.amax(-1, keepdim=True)
    weights_BV = scaled_BV.exp()
    totals_B1 = weights_BV.sum(-1, keepdim=True)
    if sampling.temperature:
        token_B = _race(_narrow(weights_BV, sampling), keys_B, positions_B)
    else:
        token_B = scaled_BV.argmax(-1)
    return token_B, (scaled_BV.gather(1, token_B[:, None]) - totals_B1.log())[:, 0]


def _narrow(weights_BV: Tensor, sampling: SamplingConfig) -> Tensor:
    if sampling.top_k:
        weights_BV = keep_top_k(weights_BV, sampling.top_k)
    if sampling.top_p < 1.0:
        weights_BV = keep_top_p(weights_BV, sampling.top_p)
    return weights_BV


def _race(weights_BV: Tensor, keys_B: Tensor, positions_B: Tensor) -> Tensor:
    arrival_BV = uniform(keys_B, positions_B, weights_BV.size(1)).log_().neg_()
    return weights_BV.div(arrival_BV).argmax(-1)


def keep_top_k(weights_BV: Tensor, top_k: int) -> Tensor:
    """Zero all but the `top_k` largest weights of each row; ties at the edge are kept."""
    edge_B1 = weights_BV.topk(min(top_k, weights_BV.size(1)), dim=-1).values[:, -1:]
    return torch.where(weights_BV >= edge_B1, weights_BV, 0.0)


def keep_top_p(weights_BV: Tensor, top_p: float) -> Tensor:
    """Zero all but the fewest largest weights that reach `top_p` of the row's sum."""
    sorted_BV, order_BV = weights_BV.sort(dim=-1, descending=True, stable=True)
    before_BV = sorted_BV.cumsum(-1) - sorted_BV
    kept_BV = before_BV < top_p * sorted_BV.sum(-1, keepdim=True)
    return torch.zeros_like(weights_BV).scatter(1, order_BV, torch.where(kept_BV, sorted_BV, 0.0))
