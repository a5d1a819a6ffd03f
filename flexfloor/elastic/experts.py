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
) -> Tensor:
    """Sum, for each row, of its experts among `experts`, each scaled by its probability.

    Args:
        hidden_TH: [T, H].
        probs_TK, expert_TK: [T, K] routing; those that are not in `experts` contribute nothing.
        experts: expert number to its products (gate-and-up [T, H] to [T, 2F], down [T, F] to [T, H]).

    Returns: [T, H].
    """
    own = [pair for pair in _pairs_by_expert(expert_TK) if pair[0] in experts]
    if not own:
        return torch.zeros_like(hidden_TH)
    places = torch.tensor([place for _, mine in own for place in mine], device=hidden_TH.device)
    num_topk = expert_TK.size(1)
    arriving = hidden_TH.index_select(0, places.div(num_topk, rounding_mode="floor"))
    counts = [len(mine) for _, mine in own]
    lifted = [experts[expert][0](rows) for (expert, _), rows in zip(own, arriving.split(counts), strict=True)]
    gate, linear = (lifted[0] if len(lifted) == 1 else torch.cat(lifted)).chunk(2, -1)
    inner = F.silu(gate).mul_(linear).split(counts)
    lowered = [experts[expert][1](rows) for (expert, _), rows in zip(own, inner, strict=True)]
    out = lowered[0] if len(lowered) == 1 else torch.cat(lowered)
    out = out.mul_(probs_TK.reshape(-1, 1).index_select(0, places))
    # Each (row, choice) has a place of its own, so that a row's sum runs over its choices in order.
    spread = out.new_zeros(probs_TK.numel(), out.size(1)).index_copy_(0, places, out)
    return spread.view(-1, num_topk, out.size(1)).sum(1)


def _pairs_by_expert(expert_TK: Tensor) -> list[tuple[int, list[int]]]:
    """For each expert that a row chose, in ascending order: the places (row * K + choice) that chose it."""
    places: dict[int, list[int]] = {}
    for place, expert in enumerate(expert_TK.reshape(-1).tolist()):
        places.setdefault(expert, []).append(place)
    return sorted(places.items())
