"""The routed experts of one rank on rows that chose them, by grouped products and without autograd.

Experts whose weights lie at even distances in memory form a bank, which is computed in one call a product:
those of training are one, the guests of a shrink another. Nothing is read back from the device, so that a
GPU gets the work of the next layer while it is at this one's.

Shapes: T rows, K experts of a row, H hidden, F inner width of an expert, G experts of a bank, E of the layer.

Invariants:
- No weight is copied, but the first ones where they do not lie evenly.
- A row's sum runs over its choices in order, whatever bank computes them.
- What other ranks compute contributes nothing, not even what memory held before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from flexfloor.elastic.grouped_product import even_groups, grouped_product

Pair = tuple[Tensor, ...]
"""Weights of an expert: gate-and-up [2F, H] and down [H, F]."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bank:
    """Experts that are computed together."""

    place_of: Tensor
    """[E] by expert: its place in the bank; G for those that are not in it."""
    up_GFH: Tensor
    """[G, 2F, H]."""
    down_GHF: Tensor


def by_place(experts: Mapping[int, Pair]) -> list[int]:
    """The experts in the order in which their weights lie in memory."""
    return sorted(experts, key=lambda expert: experts[expert][0].data_ptr())


def is_even(experts: Mapping[int, Pair]) -> bool:
    """Whether these experts form a bank without a copy."""
    pairs = [experts[expert] for expert in by_place(experts)]
    return all(len(even_groups(weights)) == 1 for weights in zip(*pairs, strict=True))


class ExpertBanks:
    """Of one layer."""

    def __init__(self, num_experts: int):
        """Args:
        num_experts: of the layer, on all ranks.
        """
        self.num_experts = num_experts
        self.banks: list[Bank] = []

    def add(self, experts: Mapping[int, Pair]) -> None:
        """Compute these too, from the weights they have now or, where these lie evenly, at each call."""
        if not experts:
            return
        order = by_place(experts)
        up, down = (_stacked([experts[expert][part] for expert in order]) for part in (0, 1))
        place_of = torch.full((self.num_experts,), len(order), dtype=torch.long)
        place_of[order] = torch.arange(len(order))
        self.banks.append(Bank(place_of=place_of.to(up.device), up_GFH=up, down_GHF=down))

    def __call__(self, hidden_TH: Tensor, probs_TK: Tensor, expert_TK: Tensor) -> Tensor:
        """[T, H]: the sum, for each row, of its experts in the banks, each scaled by its probability.

        Args:
            expert_TK: [T, K]; -1 for what another rank computes.
        """
        width = hidden_TH.size(1)
        spread = hidden_TH.new_zeros(expert_TK.numel(), width)
        if hidden_TH.size(0):
            for bank in self.banks:
                _add_bank(spread, bank, hidden_TH, probs_TK, expert_TK)
        return spread.view(-1, expert_TK.size(1), width).sum(1)


def _add_bank(spread: Tensor, bank: Bank, hidden_TH: Tensor, probs_TK: Tensor, expert_TK: Tensor) -> None:
    """Put the outputs of the bank's experts at the places (row * K + choice) that chose them."""
    size = bank.up_GFH.size(0)
    chosen = expert_TK.reshape(-1)
    place = bank.place_of[chosen.clamp(min=0)].masked_fill(chosen < 0, size)
    place, order = place.sort(stable=True)
    ends = torch.searchsorted(place, torch.arange(size, device=place.device), right=True).to(torch.int32)
    rows = hidden_TH.index_select(0, order.div(expert_TK.size(1), rounding_mode="floor"))
    gate, linear = grouped_product(rows, bank.up_GFH, ends).chunk(2, -1)
    out = grouped_product(F.silu(gate).mul_(linear), bank.down_GHF, ends)
    out = out.mul_(probs_TK.reshape(-1, 1).index_select(0, order)).masked_fill_((place == size)[:, None], 0)
    # Each place is added to once: the sum does not depend on the order in which a device adds.
    spread.index_add_(0, order, out)


def _stacked(weights: Sequence[Tensor]) -> Tensor:
    groups = even_groups(weights)
    return groups[0] if len(groups) == 1 else torch.stack([weight.detach() for weight in weights])
