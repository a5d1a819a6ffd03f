"""What a built model takes on a rank of a lease, in bytes.

Weights and what training keeps are read off the parameters. What backward needs of a row is a bound by its
parts: the states around attention and norms, the experts that it chose, its logits.
"""

from __future__ import annotations

from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.transformer.transformer_config import TransformerConfig

from flexfloor.elastic.moe_layer import moe_layers
from flexfloor.overlap.floor import LeaseMemory
from flexfloor.overlap.guests import gradient_dtype

BACKWARD = 2
"""What backward makes of a row on its way is about as much again as what forward keeps of it."""
LOGIT_COPIES = 4
"""Of a row's logits: as they are, scaled, their distribution, their gradient."""


def lease_memory(model: GPTModel, *, budget: int, training: int, has_reference: bool) -> LeaseMemory:
    """What a rank takes, the same on all ranks of an expert group.

    Args:
        budget: bytes that this rank may hold.
        training: bytes that training keeps beside the weights.
        has_reference: whether guests come with a reference policy's weights.
    """
    some = [weight for layer in moe_layers(model) for weight in next(iter(layer.expert_weights().values()))]
    config, itemsize = model.config, model.config.params_dtype.itemsize
    vocab_size = model.embedding.word_embeddings.weight.size(0)
    dense = config.num_layers * _dense_numbers(config) + LOGIT_COPIES * vocab_size
    return LeaseMemory(
        budget=budget,
        resident=training + sum(weight.nbytes for weight in model.parameters()),
        guest=sum(w.nbytes * (1 + has_reference) + w.numel() * gradient_dtype(w).itemsize for w in some),
        dense_row=BACKWARD * itemsize * dense,
        routed_row=BACKWARD * itemsize * len(moe_layers(model)) * _routed_numbers(config),
    )


def _dense_numbers(config: TransformerConfig) -> int:
    """That one layer keeps of a row outside of its routed experts."""
    channels = config.kv_channels
    if config.multi_latent_attention:
        channels = config.qk_head_dim + config.qk_pos_emb_head_dim + config.v_head_dim
    inner = max(config.moe_shared_expert_intermediate_size or 0, config.ffn_hidden_size)
    return 10 * (config.hidden_size + config.num_attention_heads * channels) + 5 * inner


def _routed_numbers(config: TransformerConfig) -> int:
    """That one layer keeps of a row in the experts that it chose."""
    inner = config.moe_ffn_hidden_size or config.ffn_hidden_size
    return config.moe_router_topk * (6 * config.hidden_size + 5 * inner)
