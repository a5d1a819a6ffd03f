"""How long the responses of each epoch become: drawn from what was published of real runs.

The logarithm of a length is a sum of normal parts: one of the prompt, which stays over epochs, one of the
checkpoint, one of both, and one of the sample. Shares of the variance and the scale are those measured on
math prompts under a cap of 16k tokens (TailSieve; see docs/simulator.md).

Invariants:
- An epoch's lengths depend on the seed and the epoch alone.
- Lengths lie between 1 and the cap; a truncated response has exactly the cap.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log, sqrt
from typing import Protocol

import numpy as np

NORMAL_P90 = 1.2815515655446004
"""Standard deviations from the median to the 90th percentile of a normal distribution."""
PROMPT_SHARE, SAMPLE_SHARE, CHECKPOINT_SHARE, BOTH_SHARE = 0.648, 0.261, 0.022, 0.069
"""Of the variance of a log-length: the prompt's, sampling's, the checkpoint's, of prompt and checkpoint."""
MEDIAN, P90_OVER_P50, CAP = 1160.0, 3.55, 16_384
"""Math prompts under a 16k cap: P50 1,160 and P90 4,115 tokens (mu 7.056, sigma 0.988)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepLengths:
    """The responses of one step, prompt by prompt."""

    uids: tuple[str, ...]
    """[P] of the prompts."""
    prompt: np.ndarray
    """[B] int: which prompt a response answers, ascending."""
    tokens: np.ndarray
    """[B] int: of each response, at least 1."""
    truncated: np.ndarray
    """[B] bool: it was cut at the cap."""


class LengthTrace(Protocol):
    """Where lengths come from."""

    @property
    def cap(self) -> int:
        """Tokens that a response may have."""

    def step(self, epoch: int) -> StepLengths:
        """The responses of an epoch, counted from 0."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnLengths:
    """Lengths of the published distribution."""

    num_prompts: int
    num_responses: int
    """Of each prompt."""
    median: float = MEDIAN
    """Tokens, before the cap."""
    p90_over_p50: float = P90_OVER_P50
    """How long the tail is, before the cap; 1.5 and 6 are stress variants."""
    cap: int = CAP
    cap_share: float = 0.0
    """Of responses that never end by themselves, whichever prompt they answer."""
    seed: int = 0

    def step(self, epoch: int) -> StepLengths:
        """The responses of an epoch, counted from 0."""
        prompts, each = self.num_prompts, self.num_responses
        lasting = np.random.default_rng([self.seed, 0])
        passing = np.random.default_rng([self.seed, 1, epoch])
        of_prompt = sqrt(PROMPT_SHARE) * lasting.standard_normal((prompts, 1))
        of_checkpoint = sqrt(CHECKPOINT_SHARE) * passing.standard_normal()
        of_both = sqrt(BOTH_SHARE) * passing.standard_normal((prompts, 1))
        of_sample = sqrt(SAMPLE_SHARE) * passing.standard_normal((prompts, each))
        endless = passing.random((prompts, each)) < self.cap_share
        sigma = log(self.p90_over_p50) / NORMAL_P90
        drawn = np.exp(log(self.median) + sigma * (of_prompt + of_checkpoint + of_both + of_sample))
        truncated = ((drawn > self.cap) | endless).ravel()
        tokens = np.clip(np.ceil(drawn), 1, self.cap).astype(np.int64).ravel()
        return StepLengths(
            uids=tuple(f"prompt-{index}" for index in range(prompts)),
            prompt=np.repeat(np.arange(prompts), each),
            tokens=np.where(truncated, self.cap, tokens),
            truncated=truncated,
        )
