"""What a rollout hands to the update.

Invariants:
- A sample holds real tokens only: no padding, no masked positions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

Key = tuple[str, int]
"""(uid, response index)"""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sample:
    """One response with what the loss needs; a demonstration has no `old_logprobs`."""

    uid: str
    """Of the prompt."""
    response_index: int
    """Which of the prompt's responses, from 0."""
    prompt_ids: np.ndarray
    """int64 [P], P >= 1: the first response token needs a row that predicts it."""
    response_ids: np.ndarray
    """int64 [R]; ends with the EOS of a finished response, has none of a truncated one; R may be 0."""
    old_logprobs: np.ndarray | None = None
    """float64 [R], nats, of the policy that sampled, at the rollout's temperature."""
    ref_logprobs: np.ndarray | None = None
    """float64 [R], nats, of the reference policy at the same temperature; only where KL is used."""
    advantage: float = 0.0
    """One for the whole response."""
    reward: float = 0.0
    """What the advantage is formed of: the score, less the KL where that is in the reward."""

    def __post_init__(self) -> None:
        assert len(self.prompt_ids) >= 1, f"{self.uid}/{self.response_index}: empty prompt"
        for logprobs in (self.old_logprobs, self.ref_logprobs):
            if logprobs is not None:
                lengths = len(logprobs), len(self.response_ids)
                told = f"{self.uid}/{self.response_index}: {lengths} logprobs, tokens"
                assert lengths[0] == lengths[1], told

    @property
    def key(self) -> Key:
        """Of the response, unique in a step."""
        return self.uid, self.response_index

    @property
    def num_rows(self) -> int:
        """Rows of a forward pass: every token but the last, which predicts nothing; 0 for no response."""
        num_trained = len(self.response_ids)
        return len(self.prompt_ids) + num_trained - 1 if num_trained else 0
