"""Experts that a lease trains on ranks which do not own them: weights to compute with, and sums of gradients.

Invariants:
- A guest's gradients are added up in float32 at least, whatever its weights are in.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class Guest:
    """One expert in all MoE layers."""

    def __init__(self, like: Sequence[tuple[Tensor, ...]], *, has_reference: bool):
        """Args:
        like: by layer, parameters of any expert of the model.
        has_reference: whether a reference policy's weights come with the policy's.
        """
        self.weights = [tuple(_leaf(weight) for weight in each) for each in like]
        self.gradients = [tuple(_sum(weight) for weight in each) for each in self.weights]
        self._reference = (
            [torch.empty_like(weight) for weight in self.flat_weights()] if has_reference else []
        )
        for weight, total in zip(self.flat_weights(), self.flat_gradients(), strict=True):
            weight.register_post_accumulate_grad_hook(_adding_to(total))

    def flat_weights(self) -> list[Tensor]:
        """By layer and then parameter."""
        return [weight for each in self.weights for weight in each]

    def flat_gradients(self) -> list[Tensor]:
        """In the order of the weights; sums that nobody has divided."""
        return [total for each in self.gradients for total in each]

    def arriving(self) -> list[Tensor]:
        """What its owner sends, in the order in which it does."""
        return [*(weight.detach() for weight in self.flat_weights()), *self._reference]

    @torch.no_grad()
    def change_places(self) -> None:
        """Let policy and reference change places."""
        for weight, other in zip(self.flat_weights(), self._reference, strict=True):
            leaving = weight.clone()
            weight.copy_(other)
            other.copy_(leaving)


def gradient_dtype(weight: Tensor) -> torch.dtype:
    """In which sums of its gradients are kept and sent."""
    return torch.promote_types(weight.dtype, torch.float32)


def _leaf(weight: Tensor) -> Tensor:
    return torch.empty_like(weight, requires_grad=True)


def _sum(weight: Tensor) -> Tensor:
    return torch.zeros_like(weight, dtype=gradient_dtype(weight), requires_grad=False)


def _adding_to(total: Tensor):
    def add(weight: Tensor) -> None:
        # Of an expert without rows there is none where experts are computed in groups.
        if weight.grad is not None:
            total.add_(weight.grad)
            weight.grad = None

    return add
