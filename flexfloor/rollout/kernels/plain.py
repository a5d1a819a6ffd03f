"""The operators between a pass's matrix products as PyTorch has them, on any device.

Shapes: T rows, H hidden, K experts of a row, G key/value heads with M query heads each, N = G * M,
D channels, V channels of a value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from flexfloor.elastic.experts import swiglu_experts
from flexfloor.rollout.config import SamplingConfig
from flexfloor.rollout.context import DecodingRows
from flexfloor.rollout.rotation import rotate
from flexfloor.rollout.sampling import sample
from flexfloor.rollout.single_query import attend_heads

Linear = Callable[[Tensor], Tensor]
"""[T, in] to [T, out]."""
Experts = Mapping[int, tuple[Linear, Linear]]
"""By expert: its products, gate-and-up and down."""


class Operators(Protocol):
    """What a fast pass asks for; each implementation rounds in its own way."""

    def add_norm(
        self, hidden_TH: Tensor, part_TH: Tensor | None, weight: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        """`hidden_TH`, which may be changed in place, plus what a block gave, if any; and its RMS norm."""

    def turn(
        self, mixed_TGMD: Tensor, cos: Tensor, sin: Tensor, norms: Tensor | None, eps: float
    ) -> tuple[Tensor, Tensor]:
        """Turned queries [T, N, D], and turned keys and values [2, T, G, D].

        Args:
            mixed_TGMD: [T, G, M + 2, D], queries before key and value.
            cos, sin: those of `rotate`.
            norms: [M + 1, D] weights of RMS norms of queries and key before they turn.
        """

    def attend(self, query: Tensor, planes: Sequence[Tensor], part: DecodingRows, scale: float) -> Tensor:
        """[T, N, V] of one query row a sequence.

        Args:
            query: [T, N, D].
            planes: keys [T, G, C, D] and values [T, G, C, V], views of the cache.
            part: the rows' positions.
        """

    def swiglu(self, lifted: Tensor) -> Tensor:
        """[T, 2F], gates before linear ones, to [T, F]."""

    def experts(self, hidden_TH: Tensor, probs_TK: Tensor, expert_TK: Tensor, experts: Experts) -> Tensor:
        """See `swiglu_experts`."""

    def sample(
        self, logits_BV: Tensor, keys_B: Tensor, positions_B: Tensor, sampling: SamplingConfig
    ) -> tuple[Tensor, Tensor]:
        """See `sampling.sample`."""


class PlainOperators:
    """PyTorch's own."""

    sample = staticmethod(sample)
    experts = staticmethod(swiglu_experts)

    def add_norm(
        self, hidden_TH: Tensor, part_TH: Tensor | None, weight: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        """See `Operators`."""
        hidden_TH = hidden_TH if part_TH is None else hidden_TH + part_TH
        return hidden_TH, F.rms_norm(hidden_TH, weight.shape, weight, eps)

    def turn(
        self, mixed_TGMD: Tensor, cos: Tensor, sin: Tensor, norms: Tensor | None, eps: float
    ) -> tuple[Tensor, Tensor]:
        """See `Operators`."""
        T, G, M2, D = mixed_TGMD.shape
        turning = mixed_TGMD[:, :, : M2 - 1]
        if norms is not None:
            turning = F.rms_norm(turning, (D,), eps=eps) * norms
        turned = rotate(turning.reshape(T, G * (M2 - 1), D), cos, sin).view(T, G, M2 - 1, D)
        query, key = turned.split([M2 - 2, 1], dim=2)
        return query.reshape(T, G * (M2 - 2), D), torch.stack((key[:, :, 0], mixed_TGMD[:, :, M2 - 1]))

    def attend(self, query: Tensor, planes: Sequence[Tensor], part: DecodingRows, scale: float) -> Tensor:
        """See `Operators`."""
        keys, values = planes
        return attend_heads(query, keys, values, part.bias_BC, scale)

    def swiglu(self, lifted: Tensor) -> Tensor:
        """See `Operators`."""
        gate, linear = lifted.chunk(2, -1)
        return F.silu(gate).mul_(linear)
