"""Estimates of KL(pi || pi_ref) from the sampled tokens (Schulman, "Approximating KL divergence", 2020).

With log r = log pi_ref(token) - log pi(token), for tokens that pi sampled:

| kind | verl's name  | value         | slope in log pi | expected value    | expected gradient           |
|------|--------------|---------------|-----------------|-------------------|-----------------------------|
| `k1` | `kl`         | -log r        | 1               | KL(pi, pi_ref)    | 0: no pull, only noise      |
| `k2` | `mse`        | (log r)^2 / 2 | -log r          | near it, if small | that of KL(pi, pi_ref)      |
| `k3` | `low_var_kl` | r - 1 - log r | 1 - r           | KL(pi, pi_ref)    | that of KL(pi_ref, pi)      |

So as a loss `k1` keeps the policy near nothing; it is for watching, and for the reward.

Source: http://joschu.net/blog/kl-approx.html

Invariants:
- The estimate is tied to the graph of log pi, and pi_ref is a constant.
- At pi = pi_ref every estimate is 0, and `k2` and `k3` have no gradient.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from flexfloor.train.config import KL_NAMES

# exp of more would overflow; pi has all but forbidden such a token, so it is hardly ever sampled
MAX_LOG_RATIO = 20.0


def kl_estimate(logprobs_N: torch.Tensor, ref_logprobs_N: torch.Tensor, kind: str) -> torch.Tensor:
    """Return the estimate called `kind` (either name) at each token, [N], nats; `k3` ends at log r = 20."""
    return _ESTIMATES[KL_NAMES[kind]](ref_logprobs_N.detach() - logprobs_N)


def _k1(log_ratio_N: torch.Tensor) -> torch.Tensor:
    return -log_ratio_N


def _k2(log_ratio_N: torch.Tensor) -> torch.Tensor:
    return log_ratio_N.square() / 2


def _k3(log_ratio_N: torch.Tensor) -> torch.Tensor:
    # only from above: far below, where pi_ref all but forbids the token, the pull is needed most
    log_ratio_N = log_ratio_N.clamp(max=MAX_LOG_RATIO)
    return log_ratio_N.expm1() - log_ratio_N


_ESTIMATES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {"k1": _k1, "k2": _k2, "k3": _k3}
