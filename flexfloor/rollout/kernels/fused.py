"""The operators between a pass's matrix products as the compiled loops of `decode.c`, on a CPU.

One call reads and writes each row once, where PyTorch's operators take a call and a pass over memory each:
for few rows the calls cost about as much as the products.

Invariants:
- Pointers are taken at each call: nothing here outlives a weight, a slab or a guest.
- A row's results do not depend on the other rows.

Shapes: as in `plain`; E experts of the layer.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from flexfloor.rollout.config import SamplingConfig
from flexfloor.rollout.context import DecodingRows
from flexfloor.rollout.kernels.library import library
from flexfloor.rollout.kernels.plain import Experts
from flexfloor.rollout.sampling import sample

TYPES = {torch.float32: "float32", torch.float64: "float64", torch.bfloat16: "bfloat16"}
"""Of the rows that the loops know."""
_LONG, _REAL, _AT = ctypes.c_long, ctypes.c_double, ctypes.c_void_p
SIGNATURES = {
    "add_norm": (_LONG, _LONG, _AT, _AT, _AT, _REAL, _AT),
    "turn": (_LONG,) * 4 + (_AT,) * 4 + (_REAL, _AT, _AT),
    "attend": (_LONG,) * 5 + (_AT,) * 3 + (_LONG,) * 3 + (_AT, _REAL, _AT),
    "swiglu": (_LONG, _LONG, _AT, _AT),
    "gather": (_LONG,) * 4 + (_AT,) * 6,
    "combine": (_LONG,) * 3 + (_AT,) * 4,
    "sample": (_LONG, _LONG, _AT, _AT, _AT, _REAL, _AT, _AT),
}
"""Of the functions of `typed.h`, in its order."""


class FusedOperators:
    """See `plain.Operators` for what each does."""

    def __init__(self, dtype: torch.dtype, num_experts: int):
        """Args:
        dtype: of the rows.
        num_experts: of a layer, on all ranks.

        Raises `CompilerError`.
        """
        self.wide = torch.promote_types(dtype, torch.float32)
        self._num_experts, self._suffix = num_experts, TYPES[dtype]
        loaded = library()
        self._add_norm, self._turn, self._attend, self._swiglu, self._gather, self._combine, self._sample = (
            self._function(loaded, name) for name in SIGNATURES
        )

    def _function(self, loaded: ctypes.CDLL, name: str) -> Callable[..., Any]:
        function = loaded[f"{name}_{self._suffix}"]
        function.argtypes, function.restype = SIGNATURES[name], None
        return function

    def add_norm(
        self, hidden_TH: Tensor, part_TH: Tensor | None, weight: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        """The sum is taken in place."""
        rows, width = hidden_TH.shape
        normed_TH = torch.empty_like(hidden_TH)
        part = None if part_TH is None else _at(part_TH)
        self._add_norm(rows, width, _at(hidden_TH), part, _at(weight), eps, _at(normed_TH))
        return hidden_TH, normed_TH

    def turn(
        self, mixed_TGMD: Tensor, cos: Tensor, sin: Tensor, norms: Tensor | None, eps: float
    ) -> tuple[Tensor, Tensor]:
        """Norms, rotation and the layout of the cache in one loop."""
        T, G, M2, D = mixed_TGMD.shape
        query, kept = mixed_TGMD.new_empty(T, G * (M2 - 2), D), mixed_TGMD.new_empty(2, T, G, D)
        weights = None if norms is None else _at(norms)
        given = (_at(mixed_TGMD), _at(cos), _at(sin), weights, eps)
        self._turn(T, G, M2 - 2, D, *given, _at(query), _at(kept))
        return query, kept

    def attend(self, query: Tensor, planes: Sequence[Tensor], part: DecodingRows, scale: float) -> Tensor:
        """Reads what each sequence holds and nothing beyond, in place of the bias."""
        keys, values = planes
        (T, N, D), G, V = query.shape, keys.size(1), values.size(3)
        assert keys.stride() == values.stride() and keys.stride(3) == 1, (keys.stride(), values.stride())
        out = query.new_empty(T, N, V)
        where = (_at(query), keys.data_ptr(), values.data_ptr(), *keys.stride()[:3])
        self._attend(T, G, N // G, D, V, *where, _at(part.positions_B), scale, _at(out))
        return out

    def swiglu(self, lifted: Tensor) -> Tensor:
        """In one loop."""
        rows, inner = lifted.size(0), lifted.size(1) // 2
        out = lifted.new_empty(rows, inner)
        self._swiglu(rows, inner, _at(lifted), _at(out))
        return out

    def experts(self, hidden_TH: Tensor, probs_TK: Tensor, expert_TK: Tensor, experts: Experts) -> Tensor:
        """Rows are sorted by expert, and added up again, in one loop each."""
        (T, H), K = hidden_TH.shape, expert_TK.size(1)
        is_here = bytes(expert in experts for expert in range(self._num_experts))
        arriving, places = hidden_TH.new_empty(T * K, H), expert_TK.new_empty(T, K)
        counts_E = expert_TK.new_empty(self._num_experts)
        given = (_at(hidden_TH), _at(expert_TK), is_here)
        self._gather(T, K, H, self._num_experts, *given, _at(places), _at(counts_E), _at(arriving))
        own = [(expert, count) for expert, count in enumerate(counts_E.tolist()) if count]
        if not own:
            return torch.zeros_like(hidden_TH)
        counts = [count for _, count in own]
        rows = arriving[: sum(counts)].split(counts)
        lifted = [experts[expert][0](mine) for (expert, _), mine in zip(own, rows, strict=True)]
        inner = self.swiglu(_joined(lifted)).split(counts)
        lowered = _joined([experts[expert][1](mine) for (expert, _), mine in zip(own, inner, strict=True)])
        out, probs_TK = torch.empty_like(hidden_TH), probs_TK.to(self.wide).contiguous()
        self._combine(T, K, H, _at(lowered), _at(probs_TK), _at(places), _at(out))
        return out

    def sample(
        self, logits_BV: Tensor, keys_B: Tensor, positions_B: Tensor, sampling: SamplingConfig
    ) -> tuple[Tensor, Tensor]:
        """In one loop, but with top-p or top-k as PyTorch does it."""
        if sampling.top_k or sampling.top_p < 1.0:
            return sample(logits_BV, keys_B, positions_B, sampling)
        B, V = logits_BV.shape
        logits_BV = logits_BV.contiguous()
        tokens_B, logprobs_B = torch.empty_like(keys_B), torch.empty(B, dtype=torch.float64)
        given = (_at(logits_BV), _at(keys_B), _at(positions_B), sampling.temperature)
        self._sample(B, V, *given, _at(tokens_B), _at(logprobs_B))
        return tokens_B, logprobs_B


def _at(tensor: Tensor) -> int:
    assert tensor.is_contiguous(), tensor.stride()
    return tensor.data_ptr()


def _joined(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))
