"""Which rank trains which sample in which micro-batch.

All ranks of an expert-parallel group meet in every MoE layer, so all run the same number of
micro-batches, and the k-th of them takes as long as its fullest rank. Longest sequences are placed
first, each into the emptiest micro-batch that has room; then micro-batches of like size are dealt
to the ranks side by side.

Invariants:
- Each sample with rows is in exactly one micro-batch of one rank.
- Every rank has the same number of micro-batches; some may be empty, but never on all ranks at once.
- No micro-batch holds more than `max_tokens` rows, unless it is a single longer sample.
- The plan depends on the arguments alone, so ranks that hold the same samples agree without talking.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

Bin = list[int]


def plan_micro_batches(lengths: Sequence[int], num_ranks: int, max_tokens: int) -> list[list[Bin]]:
    """Return the sample indices of each micro-batch as plan[rank][micro_batch].

    Args:
        lengths: [N], rows of each sample; one of 0 has nothing to train and is left out.
        num_ranks: data-parallel ranks; under tensor parallelism replicas, of which all ranks run the same.
        max_tokens: rows that a micro-batch may hold.
    """
    assert num_ranks >= 1 and max_tokens >= 1, (num_ranks, max_tokens)
    longest_first = sorted((i for i in range(len(lengths)) if lengths[i]), key=lambda i: (-lengths[i], i))
    num_micro_batches = _least_micro_batches(lengths, num_ranks, max_tokens)
    while (bins := _fill(lengths, longest_first, num_ranks * num_micro_batches, max_tokens)) is None:
        num_micro_batches += 1
    return _deal(lengths, bins, num_ranks)


def _least_micro_batches(lengths: Sequence[int], num_ranks: int, max_tokens: int) -> int:
    """Return a lower bound: samples too long for company take a bin each, the rest fill bins fully."""
    num_oversized = sum(length >= max_tokens for length in lengths)
    rest = sum(length for length in lengths if length < max_tokens)
    num_bins = num_oversized + -(-rest // max_tokens)
    return -(-num_bins // num_ranks)


def _fill(
    lengths: Sequence[int], longest_first: list[int], num_bins: int, max_tokens: int
) -> list[Bin] | None:
    """Put each sample into the emptiest bin; None when one finds no room."""
    bins: list[Bin] = [[] for _ in range(num_bins)]
    emptiest = [(0, position) for position in range(num_bins)]
    for sample in longest_first:
        load, position = emptiest[0]
        if load and load + lengths[sample] > max_tokens:
            return None
        bins[position].append(sample)
        heapq.heapreplace(emptiest, (load + lengths[sample], position))
    return bins


def _deal(lengths: Sequence[int], bins: list[Bin], num_ranks: int) -> list[list[Bin]]:
    """Give bins of like size to the same turn, to and fro over the ranks so that their totals even out."""
    fullest_first = sorted(bins, key=lambda members: -sum(lengths[i] for i in members))
    plan: list[list[Bin]] = [[] for _ in range(num_ranks)]
    for start in range(0, len(fullest_first), num_ranks):
        turn = fullest_first[start : start + num_ranks]
        if (start // num_ranks) % 2:
            turn.reverse()
        for rank, members in enumerate(turn):
            plan[rank].append(members)
    return plan
