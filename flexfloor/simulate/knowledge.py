"""What a policy knows of lengths when a step begins, and what the step teaches it.

Invariants:
- Nothing but an oracle is given a length of the step before the response has ended.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from flexfloor.schedule.beliefs import Beliefs
from flexfloor.schedule.forecast import Wanted
from flexfloor.schedule.frontier import horizons
from flexfloor.schedule.history import LengthHistory
from flexfloor.simulate.lengths import StepLengths
from flexfloor.simulate.outlook import BelievedOutlook, KnownOutlook, Outlook


class Knowledge(Protocol):
    """Of one policy over the epochs."""

    def wanted(self, lengths: StepLengths, prompt_tokens: int) -> Wanted:
        """What a step is likely to generate: its prompts, or its responses where each is known by itself."""
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

    def wanted(self, lengths: StepLengths, prompt_tokens: int) -> Wanted:
        """By the belief about each prompt."""
        n, over = divmod(len(lengths.tokens), len(lengths.uids))
        beliefs = self._beliefs(lengths)
        if over or (np.bincount(lengths.prompt) != n).any():
            return _each_by_itself(beliefs.mean(self.cap)[lengths.prompt], prompt_tokens)
        return Wanted.expected([prompt_tokens] * len(lengths.uids), beliefs, n=n, limit=self.cap)

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

    def wanted(self, lengths: StepLengths, prompt_tokens: int) -> Wanted:
        """Of one length."""
        return _each_by_itself(np.ones(len(lengths.tokens)), prompt_tokens)

    def outlook(self, lengths: StepLengths) -> Outlook | None:
        """There is none."""

    def learn(self, lengths: StepLengths, epoch: int) -> None:
        """Nothing is learned."""


class OfOracle:
    """The very lengths."""

    def __init__(self, cap: int):
        self.cap = cap

    def wanted(self, lengths: StepLengths, prompt_tokens: int) -> Wanted:
        """What each response will have."""
        return _each_by_itself(lengths.tokens.astype(float), prompt_tokens)

    def outlook(self, lengths: StepLengths) -> Outlook:
        """Certainties."""
        return KnownOutlook(lengths, horizons(self.cap))

    def learn(self, lengths: StepLengths, epoch: int) -> None:
        """There is nothing to learn."""


def _each_by_itself(tokens: np.ndarray, prompt_tokens: int) -> Wanted:
    return Wanted(prompt_tokens=np.full(len(tokens), prompt_tokens), lengths=tokens[:, None])
