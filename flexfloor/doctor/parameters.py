"""How many parameters a model of the shipped families has: plain arithmetic, before any model exists.

Invariants:
- Every parameter is counted once, as Hugging Face's classes of the same models count them.
"""

from __future__ import annotations

from flexfloor.models.config import ModelConfig


def expert_parameters(model: ModelConfig) -> int:
    """Parameters of one routed expert, over all layers that have experts."""
    return model.num_moe_layers * 3 * model.hidden_size * model.moe_ffn_hidden_size


def dense_parameters(model: ModelConfig, vocab_size: int) -> int:
    """All parameters but the routed experts': embeddings, attention, norms, dense layers, shared experts
    and routers."""
    embeddings = model.hidden_size * vocab_size * (1 if model.tie_embeddings else 2)
    return embeddings + _plain_parts(model) + _around_experts(model) + model.hidden_size


def recomputed_parameters(model: ModelConfig, recompute: str) -> int:
    """Parameters that a token meets once more where backward computes its activations again.

    Args:
        recompute: what is computed again (`activations.RECOMPUTE`).
    """
    if recompute == "none":
        return 0
    experts = _around_experts(model) + model.moe_router_topk * expert_parameters(model)
    return experts + (_plain_parts(model) if recompute == "full" else 0)


def _plain_parts(model: ModelConfig) -> int:
    """Parameters of attention, norms and dense networks of all layers."""
    layers = model.num_layers * (_attention(model) + 2 * model.hidden_size)
    return layers + model.first_k_dense_replace * 3 * model.hidden_size * model.ffn_hidden_size


def _around_experts(model: ModelConfig) -> int:
    """Parameters of shared experts and routers of all layers."""
    shared = 3 * (model.shared_ffn_hidden_size or 0)
    return model.num_moe_layers * model.hidden_size * (shared + model.num_experts)


def _attention(model: ModelConfig) -> int:
    """Parameters of the attention of one layer."""
    if model.kv_lora_rank is not None:
        return _latent_attention(model, model.kv_lora_rank)
    heads = 2 * model.num_attention_heads + 2 * model.num_query_groups
    norms = 2 * model.channels_per_head if model.family == "qwen3_moe" else 0
    return model.hidden_size * heads * model.channels_per_head + norms


def _latent_attention(model: ModelConfig, kv_rank: int) -> int:
    hidden, heads, query_rank = model.hidden_size, model.num_attention_heads, model.q_lora_rank
    query_width = heads * model.channels_per_head
    query = hidden * query_width
    if query_rank is not None:
        query = query_rank * (hidden + 1 + query_width)
    latent = hidden * (kv_rank + model.qk_rope_head_dim) + kv_rank
    expansion = kv_rank * heads * (model.qk_nope_head_dim + model.v_head_dim)
    return query + latent + expansion + heads * model.v_head_dim * hidden
