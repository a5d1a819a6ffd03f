"""Log-probabilities and entropy of the distribution that the rollout samples from.

The logits are divided by the sampling temperature and nothing is truncated. Computed in float32
at least; float64 stays.

Shapes: T rows of a packed pass, V vocabulary, N trained tokens.

Invariants:
- Only the rows asked for are read: whatever stands in the others (NaN too) reaches neither the
  values nor the gradient.
- Log-probabilities and entropy come from the same scaled logits.
"""

from __future__ import annotations

import torch


def scaled_logits(logits_TV: torch.Tensor, rows_N: torch.Tensor, temperature: float) -> torch.Tensor:
    """Return logits / temperature of the rows that predict trained tokens, [N, V], float32 or float64."""
    assert temperature > 0, f"temperature {temperature}: log-probabilities need one above 0"
    logits_NV = logits_TV.index_select(0, rows_N)
    wide = torch.promote_types(logits_NV.dtype, torch.float32)
    return logits_NV.to(wide) / temperature


def token_logprobs(scaled_logits_NV: torch.Tensor, labels_N: torch.Tensor) -> torch.Tensor:
    """Return log pi(label), [N], nats."""
    chosen_N = scaled_logits_NV.gather(1, labels_N[:, None]).squeeze(1)
    return chosen_N - scaled_logits_NV.logsumexp(dim=1)


def token_entropy(scaled_logits_NV: torch.Tensor) -> torch.Tensor:
    """Return the entropy of each row's distribution, [N], nats."""
    logprobs_NV = scaled_logits_NV.log_softmax(dim=1)
    return -(logprobs_NV.exp() * logprobs_NV).sum(dim=1)
