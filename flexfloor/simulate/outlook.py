"""What a group's ranks tell of how many of their responses will be unfinished after so many more passes.

Invariants:
- An outlook that believes sees no length of a response before it has ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Protocol

import numpy as np

from flexfloor.schedule.beliefs import Beliefs
from flexfloor.schedule.guided import told, variances
from flexfloor.simulate.lengths import StepLengths

MOST_ASKED = 2048
"""Responses that are asked for their chances; of more, evenly chosen ones stand for all."""
Unfinished = Sequence[tuple[int, int]]
"""Responses of a rank and the tokens that they have by now."""
Told = tuple[tuple[int, ...], int]
"""`Standing.alive` and `Standing.deviation` of a rank."""


class Outlook(Protocol):
    """Of some ranks of one expert group in one step."""

    def told(self, unfinished: Sequence[Unfinished], ended: Sequence[int]) -> list[Told]:
        """By each rank.

        Args:
            unfinished: responses of each.
            ended: those that ended on all of them since it was last asked.
        """
        ...


class KnownOutlook:
    """Of an oracle."""

    def __init__(self, lengths: StepLengths, horizons: np.ndarray):
        self.lengths, self.horizons = lengths, horizons

    def told(self, unfinished: Sequence[Unfinished], ended: Sequence[int]) -> list[Told]:
        """Certainties."""
        responses, tokens = _columns(unfinished)
        left = self.lengths.tokens[responses] - tokens
        survival = (left[:, None] > self.horizons).astype(float)
        return _by_rank(survival, self.horizons, [(len(own), 1.0) for own in unfinished])


class BelievedOutlook:
    """Of beliefs that the step sharpens: what ended, and what lives still, tells of siblings."""

    def __init__(self, beliefs: Beliefs, lengths: StepLengths, horizons: np.ndarray, cap: int):
        self.beliefs, self.lengths, self.horizons, self.cap = beliefs, lengths, horizons, cap

    def told(self, unfinished: Sequence[Unfinished], ended: Sequence[int]) -> list[Told]:
        """Chances."""
        done = np.array(ended, dtype=np.int64)
        prompt = self.lengths.prompt
        if len(done):
            self.beliefs = self.beliefs.finished(
                prompt[done], self.lengths.tokens[done], self.lengths.truncated[done]
            )
        each_of = max(1, -(-sum(map(len, unfinished)) // MOST_ASKED))
        asked = [own[::each_of] for own in unfinished]
        responses, tokens = _columns(asked)
        beliefs = self.beliefs.alive(prompt[responses], tokens)
        survival = beliefs.survival(prompt[responses], tokens, self.horizons, self.cap)
        shares = [
            (len(some), len(own) / max(1, len(some))) for some, own in zip(asked, unfinished, strict=True)
        ]
        return _by_rank(survival, self.horizons, shares)


def _by_rank(survival: np.ndarray, horizons: np.ndarray, ranks: Sequence[tuple[int, float]]) -> list[Told]:
    """Args:
    survival: [B, H], of one rank after the other.
    ranks: of each, how many of them are its own, and how many responses each of those stands for.
    """
    spread, start, found = variances(survival, horizons), 0, []
    for count, share in ranks:
        own = slice(start, start + count)
        deviation = round(sqrt(float(share * spread[own].sum())))
        found.append((told(survival[own] * share), deviation))
        start += count
    return found


def _columns(unfinished: Sequence[Unfinished]) -> tuple[np.ndarray, np.ndarray]:
    columns = np.array([each for own in unfinished for each in own], dtype=np.int64).reshape(-1, 2)
    return columns[:, 0], columns[:, 1]
