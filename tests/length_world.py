"""Response lengths as they were measured on mathematics: a log-normal of four parts, generated.

Shares of the variance of log-length: prompt 64.8 %, sampling 26.1 %, checkpoint 2.2 %, and 6.9 % of prompt
and checkpoint together; mean 7.056, deviation 0.988, limit 16,384.
"""

from dataclasses import dataclass, field

import numpy as np


@dataclass
class World:
    """Prompts, and a policy that changes from one visit to the next."""

    seed: int
    num_prompts: int = 400
    mean: float = 7.056
    sd: float = 0.988
    limit: int = 16384
    at_limit: float = 0.0
    rng: np.random.Generator = field(init=False)

    def __post_init__(self):
        self.rng = np.random.default_rng(self.seed)
        self.prompt_part, self.sampling, self.checkpoint, self.together = self.sd * np.sqrt(
            [0.648, 0.261, 0.022, 0.069]
        )
        self.own = self.rng.normal(0, self.prompt_part, self.num_prompts)

    def visit(self, n=8):
        """Lengths of n responses to each prompt by the next policy, [P, n]; truncated at the limit."""
        shift = self.rng.normal(0, self.checkpoint) + self.rng.normal(0, self.together, self.num_prompts)
        logs = self.mean + (self.own + shift)[:, None]
        lengths = np.ceil(np.exp(logs + self.rng.normal(0, self.sampling, (self.num_prompts, n))))
        lengths[self.rng.random(lengths.shape) < self.at_limit] = self.limit
        return np.minimum(lengths, self.limit).astype(int)


def observe(history, world, lengths, step, prompts=None):
    """Tell a history the lengths of one visit."""
    for prompt in range(world.num_prompts) if prompts is None else prompts:
        history.observe(str(prompt), lengths[prompt], lengths[prompt] >= world.limit, step)


def ranks_of(beliefs, prompt_index, tokens, lengths, limit, rng):
    """Where each real length lies in its predicted distribution: uniform in [0, 1] if that is right.

    Of the unfinished responses of `tokens` [B], whose lengths will be `lengths`; 0 is short.
    """
    found = []
    for start in range(0, len(lengths), 256):
        part = slice(start, start + 256)
        more = lengths[part] - tokens[part]
        curves = beliefs.survival(prompt_index[part], tokens[part], np.concatenate([more - 1, more]), limit)
        before, after = np.diagonal(curves), np.diagonal(curves[:, len(more) :])
        found.append(1.0 - (after + rng.random(len(more)) * (before - after)))
    return np.concatenate(found)


def coverage(ranks):
    """Share of real lengths inside of the 80 % interval."""
    return np.mean((ranks > 0.1) & (ranks < 0.9))


def fresh_ranks(beliefs, lengths, limit, rng):
    """As `ranks_of`, for whole responses [P, n] to the prompts of `beliefs`."""
    prompt_index = np.repeat(np.arange(len(lengths)), lengths.shape[1])
    flat = lengths.ravel()
    return ranks_of(beliefs, prompt_index, np.zeros_like(flat), flat, limit, rng)
