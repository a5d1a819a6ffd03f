"""Causal attention within sequences packed end to end on one axis.

Sequences whose lengths round up to the same power of two are attended in one batched call, so that
skewed lengths cost at most twice their own work and short sequences do not cost a call each.

Shapes: T rows, N query heads, G key/value heads, D channels of a query, V of a value, B sequences of one
batch, L rows of the longest of them.

Invariants:
- Rows of a sequence see rows of that sequence only, at their own or an earlier position.
- Filling rows of a batch are later positions of the same sequence: they are seen by no kept row.
"""

from __future__ import annotations

from collections import defaultdict

import torch
import torch.nn.functional as F
from torch import Tensor


def attend_packed(
    query_TND: Tensor, key_TGD: Tensor, value_TGV: Tensor, lengths: list[int], *, scale: float | None = None
) -> Tensor:
    """Attend within each of the packed sequences.

    Args:
        query_TND: [T, N, D].
        key_TGD, value_TGV: [T, G, D] and [T, G, V]; query head n uses key/value head n // (N / G).
        lengths: rows of each sequence, in packed order; they sum to T.
        scale: of the scores; 1 / sqrt(D) when not given.

    Returns: [T, N, V].
    """
    if not query_TND.size(0):
        nothing = value_TGV.new_empty(0, query_TND.size(1), value_TGV.size(2))
        return nothing + 0 * (query_TND.sum() + key_TGD.sum() + value_TGV.sum())
    grouped = query_TND.size(1) != key_TGD.size(1)
    outputs, sources = [], []
    for rows_BL, kept_BL in _batches(lengths, query_TND.device):
        query, key, value = (_gather(x, rows_BL) for x in (query_TND, key_TGD, value_TGV))
        attended = F.scaled_dot_product_attention(
            query, key, value, is_causal=True, scale=scale, enable_gqa=grouped
        )
        outputs.append(attended.transpose(1, 2)[kept_BL])
        sources.append(rows_BL[kept_BL])
    if len(outputs) == 1:
        return outputs[0]
    return torch.cat(outputs)[torch.cat(sources).argsort()]


def _gather(x_TND: Tensor, rows_BL: Tensor) -> Tensor:
    batch, longest = rows_BL.shape
    picked = x_TND.index_select(0, rows_BL.reshape(-1))
    return picked.view(batch, longest, *x_TND.shape[1:]).transpose(1, 2)  # [B, N, L, D]


def _batches(lengths: list[int], device: torch.device) -> list[tuple[Tensor, Tensor]]:
    """For each batch: the packed row at each [B, L] place, and whether the place is a row of its own."""
    members: dict[int, list[tuple[int, int]]] = defaultdict(list)
    start = 0
    for length in lengths:
        if length:
            members[(length - 1).bit_length()].append((start, length))
        start += length
    return [_places(pairs, device) for _, pairs in sorted(members.items())]


def _places(starts_and_lengths: list[tuple[int, int]], device: torch.device) -> tuple[Tensor, Tensor]:
    starts, lengths = torch.tensor(starts_and_lengths, device=device).T[:, :, None]
    offsets = torch.arange(int(lengths.max()), device=device)[None]
    return starts + torch.minimum(offsets, lengths - 1), offsets < lengths
