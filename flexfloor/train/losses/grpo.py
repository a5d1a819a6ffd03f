"""The clipped policy-ratio loss of PPO (arXiv 1707.06347, eq. 7) as GRPO uses it, with two clip widths.

    ratio = pi(token) / pi_old(token)
    loss  = max(-A * ratio, -A * clip(ratio, 1 - clip_low, 1 + clip_high))

Invariants:
- At pi = pi_old the loss is -A and its gradient is that of -A * log pi.
"""

from __future__ import annotations

import torch

from flexfloor.train.batch import PackedBatch
from flexfloor.train.losses.token_loss import TokenLoss

# exp of more would overflow and turn a gradient into NaN; the clip has long flattened one side
MAX_LOG_RATIO = 20.0


def grpo_loss(
    logprobs_N: torch.Tensor, batch: PackedBatch, clip_ratio_low: float, clip_ratio_high: float
) -> TokenLoss:
    """Return the loss of each response token, with `pg_clipfrac` and `ppo_kl` (pi_old against pi, nats)."""
    assert batch.old_logprobs_N is not None, "samples without old_logprobs"
    log_ratio_N = logprobs_N - batch.old_logprobs_N
    ratio_N = log_ratio_N.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    plain_N = -batch.advantages_N * ratio_N
    clipped_N = -batch.advantages_N * ratio_N.clamp(1 - clip_ratio_low, 1 + clip_ratio_high)
    measures = {"pg_clipfrac": (clipped_N > plain_N).double(), "ppo_kl": -log_ratio_N.detach()}
    return TokenLoss(loss_N=torch.maximum(plain_N, clipped_N), measures=measures)
