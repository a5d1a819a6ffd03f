"""Rows of the output layer that stand for no token: checkpoints often have more rows than tokens.

Their logits are cut off where they arise, so that what samples and what trains see the same distribution over
the same tokens. The rows themselves stay, to be saved and exported as they came, and get no gradient.
"""

from __future__ import annotations

from megatron.core.models.gpt.gpt_model import GPTModel
from torch import Tensor, nn


def cut_logits(gpt: GPTModel, num_tokens: int) -> None:
    """Let the logits of `gpt` end after `num_tokens`; its output layer must have as many rows."""
    rows = gpt.vocab_size
    assert num_tokens <= rows, (num_tokens, rows)
    if num_tokens == rows:
        return

    def cut(layer: nn.Module, inputs: tuple, output: tuple[Tensor, Tensor | None]) -> tuple:
        logits, bias = output
        return logits[..., :num_tokens], bias

    gpt.num_tokens = num_tokens
    gpt.output_layer.register_forward_hook(cut)


def token_rows(gpt: GPTModel, weight: Tensor) -> Tensor:
    """The rows of the output layer's `weight` [V, H] that stand for tokens."""
    return weight[: getattr(gpt, "num_tokens", weight.size(0))]
