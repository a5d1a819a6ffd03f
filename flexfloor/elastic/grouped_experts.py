"""Megatron's experts, each with its own parameters, computed by grouped matrix products.

What a GPU trains with: one call a product for all experts of a rank instead of one for each of them. The
parameters, their names and their place in checkpoints, gradient buffers and optimizer are those of
Megatron's `SequentialMLP`.

Shapes: R rows in the order of experts, H hidden, F inner width of an expert.

Invariants:
- Results and gradients are those of Megatron's loop, up to rounding.
- An expert without rows gets no gradient, and a rank without rows still meets its peers in backward.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch.nn.functional as F
from megatron.core.transformer.moe.experts import SequentialMLP
from megatron.core.transformer.transformer_config import TransformerConfig
from torch import Tensor, nn

from flexfloor.elastic.grouped_product import grouped_linear


def can_group(config: TransformerConfig) -> bool:
    """Whether experts of `config` are what `GroupedExperts` computes: plain SwiGLU networks without bias."""
    is_swiglu = config.gated_linear_unit and config.activation_func is F.silu
    is_plain = not config.glu_linear_offset and config.activation_func_clamp_value is None
    return is_swiglu and is_plain and not config.add_bias_linear


class GroupedExperts(SequentialMLP):
    """The routed experts of one rank."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        assert can_group(self.config), "these experts are no plain SwiGLU networks"
        self.local_experts: nn.ModuleList = _LastFirst(self.local_experts)

    def forward(
        self, permuted_local_hidden_states: Tensor, tokens_per_expert: Tensor, permuted_probs: Tensor
    ) -> tuple[Tensor, None]:
        """Outputs [R, H] of rows [R, H], scaled by their probabilities [R], and no bias."""
        weights = [tuple(expert.parameters()) for expert in self.local_experts]
        return grouped_swiglu(permuted_local_hidden_states, tokens_per_expert, permuted_probs, weights), None


def grouped_swiglu(
    rows_RH: Tensor, rows_per_expert: Tensor, probs_R: Tensor, weights: Sequence[tuple[Tensor, ...]]
) -> Tensor:
    """[R, H]: the outputs of SwiGLU networks, scaled by the rows' probabilities.

    Args:
        rows_RH: [R, H], those of the first expert first, as many as `rows_per_expert` says.
        weights: of each expert: gate-and-up [2F, H] and down [H, F].
    """
    counts = rows_per_expert.tolist()
    ups, downs = zip(*weights, strict=True)
    gate, linear = grouped_linear(rows_RH, counts, ups).chunk(2, -1)
    inner = F.silu(gate) * linear
    scaled = (inner * probs_R[:, None]).to(inner.dtype)
    return grouped_linear(scaled, counts, downs)


class _LastFirst(nn.ModuleList):
    """Modules whose parameters are listed from the last one's on.

    Megatron's buffers take parameters in reverse, so that they hold these in ascending order, as the kernel
    wants them.
    """

    def __init__(self, modules: nn.ModuleList):
        super().__init__()
        for index in reversed(range(len(modules))):
            self.add_module(str(index), modules[index])

    def __iter__(self) -> Iterator[nn.Module]:
        return (self[index] for index in range(len(self)))
