"""Samples packed one after the other into one forward pass, with the rows that the loss reads.

A sample's tokens but its last are rows; the row before a response token predicts it. What the loss
does not need is not there: no padding, and no masks to multiply with.

Shapes: T rows, S sequences, N trained (response) tokens.

Invariants:
- Row rows_N[k] is the token just before labels_N[k] in the same sequence.
- Exactly the response tokens are labels, each once, in the order of the samples.
- A batch of no samples has T = 0 and takes the same path.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from flexfloor.train.losses.aggregate import token_weights
from flexfloor.train.types import Sample


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PackedBatch:
    """One micro-batch of one rank, on its device."""

    input_ids_T: torch.Tensor
    """int64 [T]."""
    position_ids_T: torch.Tensor
    """int64 [T], from 0 in each sequence."""
    cu_seqlens: torch.Tensor
    """int32 [S + 1]; sequence s is rows cu_seqlens[s] to cu_seqlens[s + 1]."""
    rows_N: torch.Tensor
    """int64 [N], which row predicts the token."""
    labels_N: torch.Tensor
    """int64 [N]."""
    weights_N: torch.Tensor
    """float64 [N], what the token's loss is multiplied with before summing."""
    advantages_N: torch.Tensor
    """float64 [N], the advantage of the token's response."""
    old_logprobs_N: torch.Tensor | None
    """float64 [N], nats; None when the samples have none."""
    ref_logprobs_N: torch.Tensor | None
    """float64 [N], nats; None when the samples have none."""


def pack(samples: Sequence[Sample], loss_agg_mode: str, device: torch.device) -> PackedBatch:
    """Pack samples that have at least one response token each; there may be none at all."""
    assert all(len(sample.response_ids) for sample in samples), "a response without tokens has no row"
    lengths = [len(sample.response_ids) for sample in samples]
    num_rows = np.array([sample.num_rows for sample in samples], dtype=np.int64)
    starts = np.concatenate(([0], num_rows.cumsum()))
    first_rows = [start + len(s.prompt_ids) - 1 for start, s in zip(starts[:-1], samples, strict=True)]
    loss_rows = [row + np.arange(n) for row, n in zip(first_rows, lengths, strict=True)]
    advantages = np.array([s.advantage for s in samples], dtype=np.float64)
    old_logprobs = _all_or_none([s.old_logprobs for s in samples], "old_logprobs")
    ref_logprobs = _all_or_none([s.ref_logprobs for s in samples], "ref_logprobs")
    return PackedBatch(
        input_ids_T=_join([_row_tokens(s) for s in samples], np.int64).to(device),
        position_ids_T=_join([np.arange(n) for n in num_rows], np.int64).to(device),
        cu_seqlens=_join([starts], np.int32).to(device),
        rows_N=_join(loss_rows, np.int64).to(device),
        labels_N=_join([s.response_ids for s in samples], np.int64).to(device),
        weights_N=_join([token_weights(loss_agg_mode, lengths)], np.float64).to(device),
        advantages_N=_join([np.repeat(advantages, lengths)], np.float64).to(device),
        old_logprobs_N=None if old_logprobs is None else _join(old_logprobs, np.float64).to(device),
        ref_logprobs_N=None if ref_logprobs is None else _join(ref_logprobs, np.float64).to(device),
    )


def _row_tokens(sample: Sample) -> np.ndarray:
    return np.concatenate((sample.prompt_ids, sample.response_ids[:-1]))


def _all_or_none(values: Sequence[np.ndarray | None], name: str) -> list[np.ndarray] | None:
    given = [value for value in values if value is not None]
    if values and not given:
        return None
    assert len(given) == len(values), f"{len(given)} of {len(values)} samples have {name}"
    return given


def _join(parts: Sequence[np.ndarray], dtype: type) -> torch.Tensor:
    return torch.from_numpy(np.concatenate([np.empty(0, dtype), *parts]).astype(dtype, copy=False))
