"""What a group's ranks tell of how many of their responses will be unfinished after so many more passes.

Invariants:
- An outlook that believes sees no length of a response before it has ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from flexfloor.schedule.beliefs import Beliefs
from flexfloor.schedule.guided import told
from flexfloor.simulate.lengths import StepLengths

MOST_ASKED = 2048
"""Responses that are asked for their chances; of more, evenly chosen ones stand for all."""
Unfinished = Sequence[tuple[int, int]]
"""Responses and the tokens that they have by now."""


class Outlook(Protocol):
    """Of some ranks of one expert group in one step."""

    def told(self, unfinished: Unfinished, ended: Sequence[int]) -> tuple[int, ...]:
        """`Standing.alive` of them together.

        Args:
            unfinished: their responses.
            ended: those that ended on them since it was last asked.
        """
        ...


class KnownOutlook:
    """Of an oracle."""

    def __init__(self, lengths: StepLengths, horizons: np.ndarray):
        self.lengths, self.horizons = lengths, horizons

    def told(self, unfinished: Unfinished, ended: Sequence[int]) -> tuple[int, ...]:
        """Certainties."""
        responses, tokens = _columns(unfinished)
        left = self.lengths.tokens[responses] - tokens
        return told((left[:, None] > self.horizons).astype(float))


class BelievedOutlook:
    """Of beliefs that the step sharpens: what ended, and what lives still, tells of siblings."""

    def __init__(self, beliefs: Beliefs, lengths: StepLengths, horizons: np.ndarray, cap: int):
        self.beliefs, self.lengths, self.horizons, self.cap = beliefs, lengths, horizons, cap

    def told(self, unfinished: Unfinished, ended: Sequence[int]) -> tuple[int, ...]:
        """Chances."""
        done = np.array(ended, dtype=np.int64)
        prompt = self.lengths.prompt
        if len(done):
            self.beliefs = self.beliefs.finished(
                prompt[done], self.lengths.tokens[done], self.lengths.truncated[done]
            )
        each_of = max(1, -(-len(unfinished) // MOST_ASKED))
        responses, tokens = _columns(unfinished[::each_of])
        beliefs = self.beliefs.alive(prompt[responses], tokens)
        survival = beliefs.survival(prompt[responses], tokens, self.horizons, self.cap)
        return told(survival * (len(unfinished) / max(1, len(responses))))


def _columns(unfinished: Unfinished) -> tuple[np.ndarray, np.ndarray]:
    columns = np.array(unfinished, dtype=np.int64).reshape(-1, 2)
    return columns[:, 0], columns[:, 1]
