"""Megatron's own recomputation of activations, for models that FlexFloor builds.

Forward then keeps the input of a part alone, and backward runs that part's forward once more, its exchange
of rows between ranks too: ranks that train together must all do so, which one configuration sees to.

Invariants:
- Gradients, numbers of an expert's rows and biases of experts are those without, to the bit on a CPU.
- Generation and passes without gradients recompute nothing.
"""

from __future__ import annotations

from megatron.core.transformer.transformer_config import TransformerConfig


def set_recompute(config: TransformerConfig, recompute: str) -> None:
    """Let models that are built from `config` recompute what `recompute` says (`activations.RECOMPUTE`)."""
    if recompute == "full":
        config.recompute_granularity = "full"
        config.recompute_method, config.recompute_num_layers = "uniform", 1
    elif recompute == "moe":
        config.recompute_granularity, config.recompute_modules = "selective", ["moe"]
    else:
        assert recompute == "none", recompute
