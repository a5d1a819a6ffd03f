"""What a rollout has told of a prompt's responses so far, and what follows for the mean of their log-length.

A finished response is a measurement. One that is unfinished after t tokens, or was cut there, only says
"longer than t". Both are needed: the first of n siblings to finish is the shortest, and taken alone it would
make the others look short.

Invariants:
- The order in which responses are told changes nothing.
- A prior that is far from all measurements is widened until it no longer outweighs them.
- Means and deviations are finite whatever is told.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flexfloor.schedule.normal import survival

NUM_POINTS = 40
"""Points of the grid over a prompt's mean."""
REACH = 2.3
"""The grid begins sinh(REACH) = 5 deviations below the measured mean."""
SURPRISE = 3.0
"""A prior is widened until the measurements are no more than so many deviations away from it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Longer:
    """Responses of which only a lower bound is known."""

    prompt: np.ndarray
    """Their prompts, int [C]."""
    log_tokens: np.ndarray
    """Logarithm of the tokens that each has outlived, [C]."""


NOBODY = Longer(prompt=np.empty(0, dtype=np.int64), log_tokens=np.empty(0))


def longer_than(prompt: np.ndarray, tokens: np.ndarray) -> Longer:
    """Responses that are longer than `tokens` [C]; those of 0 tokens say nothing and are left out."""
    prompt, tokens = np.asarray(prompt, dtype=np.int64), np.asarray(tokens, dtype=float)
    begun = tokens > 0
    return Longer(prompt=prompt[begun], log_tokens=np.log(tokens[begun]))


def join(some: Longer, more: Longer) -> Longer:
    """The responses of both."""
    return Longer(
        prompt=np.concatenate([some.prompt, more.prompt]),
        log_tokens=np.concatenate([some.log_tokens, more.log_tokens]),
    )


def measured(
    mean: np.ndarray, sd: np.ndarray, within: float, ended: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation [P] of each prompt's mean log-length after its finished responses.

    Args:
        mean: before them, [P].
        sd: its deviation, [P].
        within: deviation of a response around its prompt's mean.
        ended: finished responses and the sum of their log-lengths, [2, P].
    """
    count = np.maximum(ended[0], 1)
    noise = within**2 / count
    off = np.where(ended[0] > 0, ended[1] / count - mean, 0.0)
    variance = np.maximum(sd**2, (off / SURPRISE) ** 2 - noise)
    share = np.where(ended[0] > 0, variance / (variance + noise), 0.0)
    return mean + share * off, np.sqrt(np.where(ended[0] > 0, share * noise, variance))


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Posterior over the mean log-length of those prompts that have responses of unknown length."""

    prompt: np.ndarray
    """The prompts, ascending, int [Q]."""
    points: np.ndarray
    """Means considered, [Q, NUM_POINTS]."""
    weights: np.ndarray
    """Each point's probability, up to a factor of the row, [Q, NUM_POINTS]."""
    rows: Longer
    """The responses of unknown length, by prompt."""
    likelihood: np.ndarray
    """Probability of being that long at each point, above 0, [C, NUM_POINTS]."""

    def without_self(
        self, prompt: np.ndarray, tokens: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The posterior of each response's prompt by its siblings alone.

        Args:
            prompt: of each response, [B].
            tokens: that it has, by which it is found among `rows`, [B].

        Returns:
            Which responses belong to a prompt of the grid, [K]; their points and weights [K, NUM_POINTS].
        """
        at = np.minimum(np.searchsorted(self.prompt, prompt), len(self.prompt) - 1)
        known = np.flatnonzero(self.prompt[at] == prompt)
        at, prompt, tokens = at[known], prompt[known], tokens[known]
        row = self._row(prompt, tokens)
        weights = self.weights[at]
        told = np.flatnonzero(row >= 0)
        weights[told] /= self.likelihood[row[told]]
        return known, self.points[at], weights

    def _row(self, prompt: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """Where responses stand in `rows`, -1 for nowhere."""
        keys = self.rows.prompt + 1j * self.rows.log_tokens
        wanted = prompt + 1j * np.log(np.maximum(tokens, 1))
        row = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        return np.where((keys[row] == wanted) & (tokens > 0), row, -1)


def make_grid(mean: np.ndarray, sd: np.ndarray, within: float, runaway: float, longer: Longer) -> Grid:
    """The posterior of the prompts in `longer` (not empty), from the measured `mean` and `sd` [P]."""
    order = np.lexsort((longer.log_tokens, longer.prompt))
    rows = Longer(prompt=longer.prompt[order], log_tokens=longer.log_tokens[order])
    prompt, first, inverse = np.unique(rows.prompt, return_index=True, return_inverse=True)
    farthest = np.maximum.reduceat(rows.log_tokens, first) + within
    offsets, log_spacing = _offsets((farthest - mean[prompt]) / sd[prompt])
    points = mean[prompt, None] + sd[prompt, None] * offsets
    z = (rows.log_tokens[:, None] - points[inverse]) / within
    likelihood = runaway + (1.0 - runaway) * survival(z)
    log_weights = np.add.reduceat(np.log(likelihood), first, axis=0) - 0.5 * offsets**2 + log_spacing
    weights = np.exp(log_weights - log_weights.max(axis=1, keepdims=True))
    return Grid(prompt=prompt, points=points, weights=weights, rows=rows, likelihood=likelihood)


def _offsets(farthest: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Points in deviations from the mean, 5 below to 5 above or `farthest` [Q]; log of their spacing."""
    top = np.maximum(REACH, np.arcsinh(np.maximum(farthest, 0.0)))
    steps = np.linspace(0.0, 1.0, NUM_POINTS)
    arguments = -REACH + (top[:, None] + REACH) * steps
    return np.sinh(arguments), np.log(np.cosh(arguments))


def moments(points: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation of each row of points [R, NUM_POINTS] under its weights."""
    total = np.einsum("rg->r", weights)
    mean = np.einsum("rg,rg->r", weights, points) / total
    square = np.einsum("rg,rg,rg->r", weights, points, points) / total
    return mean, np.sqrt(np.maximum(square - mean**2, 1e-12))
