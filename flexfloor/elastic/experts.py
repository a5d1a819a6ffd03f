"""The routed experts of one rank on rows that chose them, without autograd.

Shapes: T rows, K experts of a row, H hidden, F inner width of an expert.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor


def swiglu_experts(
    hidden_TH: Tensor,
    probs_TK: Tensor,
    expert_TK: Tensor,
    experts: Mapping[int, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]],
    num_experts: int,
) -> Tensor:
    """Sum, for each row, of its experts among `experts`, each scaled by its probability.

    Args:
        hidden_TH: [T, H].
        probs_TK, expert_TK: [T, K] routing; those that are not in `experts` contribute nothing.
        experts: expert number to its products (gate-and-up [T, H] to [T, 2F], down [T, F] to [T, H]).
        num_experts: of the whole layer.

    Returns: [T, H].
    """
    out_TH = torch.zeros_like(hidden_TH)
    flat = expert_TK.reshape(-1)
    order = flat.argsort(stable=True)
    counts = torch.bincount(flat, minlength=num_experts).tolist()
    row_of, prob_of = order // expert_TK.size(1), probs_TK.reshape(-1, 1)[order]
    start = 0
    for expert, count in enumerate(counts):
        if count and expert in experts:
            up, down = experts[expert]
            here = slice(start, start + count)
            rows = row_of[here]
            gate, linear = up(hidden_TH.index_select(0, rows)).chunk(2, -1)
            inner = F.silu(gate).mul_(linear).mul_(prob_of[here])
            out_TH.index_add_(0, rows, down(inner))
        start += count
    return out_TH
