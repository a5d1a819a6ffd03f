"""How long a rollout is likely to take if replicas generate their queues as they stand: the planner's scorer.

Each replica is taken as so many places that its queue fills in order; a response holds its place for as
many passes as it is likely to have tokens. All replicas of an expert group run the same passes, each as slow
as the fullest replica makes it. Nothing here shrinks: it compares queues, and `simulate` is the model of
whole runs.

Invariants:
- A response starts when those before it in its queue have started, and a place is free.
- No forecast is shorter than the longest response alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapreplace

import numpy as np

from flexfloor.schedule.beliefs import Beliefs
from flexfloor.schedule.cost import CostModel, PassLoad

STRETCHES = 512
"""Parts of a forecast's time; within one all passes are alike."""
STORED_SHARE = 0.75
"""Of its final length a response holds in the cache, as a mean over those that are live in a full cache."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Wanted:
    """The responses that a rollout is to generate; response i of prompt p has the number p * n + i."""

    prompt_tokens: np.ndarray
    """int [P]."""
    lengths: np.ndarray
    """float [P, n]: tokens that responses are likely to have; siblings are alike but for how they spread."""

    @classmethod
    def expected(cls, prompt_tokens: Sequence[int], beliefs: Beliefs, *, n: int, limit: int) -> Wanted:
        """`n` responses of at most `limit` tokens to each prompt, spread as the beliefs about it are."""
        shares = (np.arange(n) + 0.5) / n
        lengths_Pn = np.array([beliefs.quantile(share, limit) for share in shares], dtype=float).T
        # Nobody knows which sibling will be the long one.
        order = (np.arange(n) - np.arange(len(prompt_tokens))[:, None]) % n
        return cls(
            prompt_tokens=np.array(prompt_tokens, dtype=int),
            lengths=np.take_along_axis(lengths_Pn, order, axis=1),
        )

    @property
    def num_responses(self) -> int:
        """Of each prompt."""
        return self.lengths.shape[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    """Those that generate, all alike."""

    count: int
    group_size: int
    """Neighbouring replicas that run passes together."""
    sequences: int
    """That one may generate at a time."""
    kv_tokens: int
    """Room of one's cache."""


def forecast_seconds(
    queues: Sequence[np.ndarray], wanted: Wanted, replicas: Replicas, costs: CostModel
) -> float:
    """Seconds until the last response has ended.

    Args:
        queues: of each replica, the numbers of its responses, in order.
    """
    if not wanted.lengths.size:
        return 0.0
    spans = [_spans(queue, wanted, replicas) for queue in queues]
    last = max(float(ends.max()) for _, ends in spans if len(ends))
    width = last / STRETCHES
    loads = [_loads(queue, *span, wanted, width) for queue, span in zip(queues, spans, strict=True)]
    seconds = 0.0
    for first in range(0, replicas.count, replicas.group_size):
        rows, joining, context = np.max(loads[first : first + replicas.group_size], axis=0)
        load = PassLoad(
            ranks=np.full(STRETCHES, replicas.group_size), rows=rows, joining=joining, context=context
        )
        runs = np.max([each[0] for each in loads[first : first + replicas.group_size]], axis=0) > 0
        seconds = max(seconds, float(np.sum(width * runs * costs.pass_seconds(load))))
    return seconds


def places(wanted: Wanted, replicas: Replicas) -> int:
    """Responses that a replica is likely to generate at a time when its cache is full."""
    stored = wanted.prompt_tokens.mean() + STORED_SHARE * wanted.lengths.mean()
    return max(1, min(replicas.sequences, int(replicas.kv_tokens / stored)))


def _spans(queue: np.ndarray, wanted: Wanted, replicas: Replicas) -> tuple[np.ndarray, np.ndarray]:
    """(first passes, passes after the last) of a queue's responses."""
    lengths = wanted.lengths.reshape(-1)[queue]
    count = places(wanted, replicas)
    starts = np.zeros(len(queue))
    if len(queue) > count:
        free = sorted(lengths[:count].tolist())
        for index, length in enumerate(lengths[count:].tolist(), start=count):
            starts[index] = free[0]
            heapreplace(free, free[0] + length)
    return starts, starts + lengths


def _loads(
    queue: np.ndarray, starts: np.ndarray, ends: np.ndarray, wanted: Wanted, width: float
) -> np.ndarray:
    """[rows, prefilled tokens and attended tokens of a pass, stretches] of one replica."""
    prompts = queue // wanted.num_responses
    tokens = wanted.prompt_tokens[prompts]
    first = np.minimum((starts / width).astype(int), STRETCHES - 1)
    after = np.maximum(first + 1, np.rint(ends / width).astype(int))
    is_first = np.zeros(len(queue), dtype=bool)
    is_first[np.unique(prompts, return_index=True)[1]] = True
    changes = np.zeros((3, STRETCHES + 1))
    stored = tokens + wanted.lengths.reshape(-1)[queue] / 2
    for row, weight in ((0, np.ones(len(queue))), (2, stored)):
        np.add.at(changes[row], first, weight)
        np.add.at(changes[row], np.minimum(after, STRETCHES), -weight)
    np.add.at(changes[1], first, is_first * tokens / width)
    found = changes[:, :STRETCHES]
    found[[0, 2]] = np.cumsum(found[[0, 2]], axis=1)
    return found
