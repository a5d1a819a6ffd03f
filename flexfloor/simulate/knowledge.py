"""What a policy knows of lengths when a step begins, and what the step teaches it.

Invariants:
- Nothing but an oracle is given a length of the step before the response has ended.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from flexfloor.schedule.beliefs import Beliefs
from flexfloor.schedule.frontier import horizons
from flexfloor.schedule.history import LengthHistory
from flexfloor.simulate.lengths import StepLengths
from flexfloor.simulate.outlook import BelievedOutlook, KnownOutlook, Outlook


class Knowledge(Protocol):
    """Of one policy over the epochs."""

    def expected(self, lengths: StepLengths) -> np.ndarray:
        """[P, n] tokens that responses are likely to have, or [B, 1] where each is known by itself."""
        ...

    def outlook(self, lengths: StepLengths) -> Outlook | None:
        """Of a group in the step; None = its ranks tell nothing."""
        ...

    def learn(self, lengths: StepLengths, epoch: int) -> None:
        """Take in a step that is over."""
        ...


class FromHistory:
    """The lengths of earlier epochs."""

    def __init__(self, cap: int):
        self.cap, self.history = cap, LengthHistory(cap)

    def expected(self, lengths: StepLengths) -> np.ndarray:
        """[P, n]: quantiles of each prompt's belief, spread evenly."""
        n, over = divmod(len(lengths.tokens), len(lengths.uids))
        beliefs = self._beliefs(lengths)
        if over or (np.bincount(lengths.prompt) != n).any():
            return beliefs.mean(self.cap)[lengths.prompt][:, None]
        shares = (np.arange(n) + 0.5) / n
        return np.stack([beliefs.quantile(share, self.cap) for share in shares], axis=1).astype(float)

    def outlook(self, lengths: StepLengths) -> Outlook:
        """Beliefs that the step sharpens."""
        return BelievedOutlook(self._beliefs(lengths), lengths, horizons(self.cap), self.cap)

    def learn(self, lengths: StepLengths, epoch: int) -> None:
        """Show the step to the history."""
        bounds = np.searchsorted(lengths.prompt, np.arange(len(lengths.uids) + 1)).tolist()
        for uid, start, end in zip(lengths.uids, bounds, bounds[1:], strict=False):
            tokens, truncated = lengths.tokens[start:end].tolist(), lengths.truncated[start:end].tolist()
            self.history.observe(uid, tokens, truncated, epoch)

    def _beliefs(self, lengths: StepLengths) -> Beliefs:
        return self.history.predict(lengths.uids)


class NoKnowledge:
    """All responses are alike."""

    def expected(self, lengths: StepLengths) -> np.ndarray:
        """[B, 1]."""
        return np.ones((len(lengths.tokens), 1))

    def outlook(self, lengths: StepLengths) -> Outlook | None:
        """There is none."""

    def learn(self, lengths: StepLengths, epoch: int) -> None:
        """Nothing is learned."""


class OfOracle:
    """The very lengths."""

    def __init__(self, cap: int):
        self.cap = cap

    def expected(self, lengths: StepLengths) -> np.ndarray:
        """[B, 1]: what each response will have."""
        return lengths.tokens.astype(float)[:, None]

    def outlook(self, lengths: StepLengths) -> Outlook:
        """Certainties."""
        return KnownOutlook(lengths, horizons(self.cap))

    def learn(self, lengths: StepLengths, epoch: int) -> None:
        """There is nothing to learn."""
