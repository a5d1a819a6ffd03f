"""How long responses will become, as distributions that a rollout sharpens while it runs.

The logarithm of a response's length is normal around its prompt's mean with the deviation `within`
(`length_law`); of the prompt's mean itself a mean and a deviation are known. Siblings tell more of it
(`siblings`).

Invariants:
- Lengths lie between 1 and the limit; survival falls with the horizon and is 0 where the limit is met.
- What an unfinished response says of its siblings is not counted again for itself.
- Telling what a rollout has seen makes new beliefs; nothing here changes in place.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from flexfloor.schedule.length_law import expected, log_of_length, outlives, shortest_within
from flexfloor.schedule.siblings import NOBODY, Longer, join, longer_than, make_grid, measured, moments


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Beliefs:
    """Of the P prompts of a batch, in its order."""

    log_mean: np.ndarray
    """Of each prompt's mean log-length before the rollout, [P]."""
    log_sd: np.ndarray
    """Deviation of that mean, above 0, [P]."""
    within: float
    """Deviation of a response's log-length around its prompt's mean, above 0."""
    runaway: float
    """Share of responses that end by their limit alone, above 0 and below 1."""
    ended: np.ndarray = field(default_factory=lambda: np.zeros((2, 1)))
    """Finished responses of each prompt and the sum of their log-lengths, [2, P] or [2, 1] for all."""
    cut: Longer = NOBODY
    """Responses that were truncated in this rollout."""
    living: Longer = NOBODY
    """Responses that are unfinished."""

    def finished(self, prompt_index: np.ndarray, lengths: np.ndarray, truncated: np.ndarray) -> Beliefs:
        """These beliefs and F more finished responses.

        Args:
            prompt_index: [F].
            lengths: tokens, [F].
            truncated: whether a response met its limit, bool [F].
        """
        prompt_index, lengths = np.asarray(prompt_index, dtype=np.int64), np.asarray(lengths, dtype=float)
        truncated = np.asarray(truncated, dtype=bool)
        whole, num_prompts = prompt_index[~truncated], len(self.log_mean)
        logs = log_of_length(lengths[~truncated])
        more = [
            np.bincount(whole, minlength=num_prompts),
            np.bincount(whole, weights=logs, minlength=num_prompts),
        ]
        cut = join(self.cut, longer_than(prompt_index[truncated], lengths[truncated]))
        return replace(self, ended=self.ended + np.stack(more), cut=cut)

    def alive(self, prompt_index: np.ndarray, tokens: np.ndarray) -> Beliefs:
        """These beliefs, with `tokens` [B] as what each response has that is unfinished now."""
        return replace(self, living=longer_than(prompt_index, tokens))

    def prompt_means(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and deviation [P] of each prompt's mean log-length, by all that is known."""
        mean, sd = self._measured()
        longer = join(self.cut, self.living)
        if longer.prompt.size:
            grid = make_grid(mean, sd, self.within, self.runaway, longer)
            mean[grid.prompt], sd[grid.prompt] = moments(grid.points, grid.weights)
        return mean, sd

    def quantile(self, q: float, allowed: np.ndarray | int) -> np.ndarray:
        """Length (int [P]) that a new response of each prompt stays within with probability `q`.

        `allowed` is the limit, [P] or one for all.
        """
        mean, sd = self.prompt_means()
        return shortest_within(np.asarray(1.0 - q), mean, np.hypot(sd, self.within), self.runaway, allowed)

    def mean(self, allowed: np.ndarray | int) -> np.ndarray:
        """Expected length [P] of a new response of each prompt, of at most `allowed` tokens."""
        mean, sd = self.prompt_means()
        return expected(mean, np.hypot(sd, self.within), self.runaway, allowed)

    def survival(
        self, prompt_index: np.ndarray, tokens: np.ndarray, horizons: np.ndarray, allowed: np.ndarray | int
    ) -> np.ndarray:
        """P(unfinished after so many more tokens | unfinished now), [B, H].

        Args:
            prompt_index: of each unfinished response, [B]; it may be among those that `alive` was told.
            tokens: what it has by now, [B].
            horizons: more tokens, [H].
            allowed: its limit, [B] or one for all.
        """
        tokens = np.asarray(tokens, dtype=np.int64)
        mean, total = self._responses(np.asarray(prompt_index), tokens)
        later = tokens[:, None] + np.asarray(horizons)[None, :]
        now = outlives(tokens, mean, total, self.runaway)
        then = outlives(later, mean[:, None], total[:, None], self.runaway)
        return np.where(later < np.broadcast_to(allowed, tokens.shape)[:, None], then / now[:, None], 0.0)

    def _measured(self) -> tuple[np.ndarray, np.ndarray]:
        return measured(self.log_mean, self.log_sd, self.within, self.ended)

    def _responses(self, prompt_index: np.ndarray, tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and deviation [B] of each response's log-length, by all that is known but its own tokens."""
        prompt_mean, prompt_sd = self._measured()
        mean, sd = prompt_mean[prompt_index], prompt_sd[prompt_index]
        longer = join(self.cut, self.living)
        if longer.prompt.size:
            grid = make_grid(prompt_mean, prompt_sd, self.within, self.runaway, longer)
            known, points, weights = grid.without_self(prompt_index, tokens)
            mean[known], sd[known] = moments(points, weights)
        return mean, np.hypot(sd, self.within)
