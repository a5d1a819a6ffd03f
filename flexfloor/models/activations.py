"""What training one row takes besides weights, estimated: plain arithmetic, before any model exists."""

from __future__ import annotations

from flexfloor.models.config import DTYPE_BYTES, ModelConfig

RECOMPUTE = ("none", "moe", "full")
"""What backward computes again instead of forward keeping it: nothing, MoE layers, whole layers."""

ACTIVATION_FACTOR = 2
"""What backward and the allocator hold beside what the forward pass keeps; seen on the demo."""


def row_activation_bytes(model: ModelConfig, vocab_size: int, recompute: str, tp_size: int = 1) -> int:
    """Bytes that forward and backward of one row take on a rank, its logits included.

    Of what is computed again, `recompute`, one layer at a time is there as a whole. Of `tp_size` ranks that
    share the row each keeps its part of rows or channels (Korthikanti et al., "Reducing Activation
    Recomputation", arXiv 2205.05198, section 4.2), and all of the logits, which are gathered.
    """
    width = model.hidden_size + model.num_attention_heads * model.channels_per_head
    routed = model.moe_router_topk * (6 * model.hidden_size + 5 * model.moe_ffn_hidden_size)
    routed += 5 * model.num_shared_experts * model.moe_ffn_hidden_size
    kept, again = {
        "none": (10 * width + routed, 0),
        "moe": (10 * width, routed),
        "full": (model.hidden_size, 10 * width + routed),
    }[recompute]
    numbers = -(-(model.num_layers * kept + again) // tp_size) + 4 * vocab_size
    return ACTIVATION_FACTOR * numbers * DTYPE_BYTES[model.dtype]
