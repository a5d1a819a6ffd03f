"""Small models of each family, whose decode speed is measured."""

from __future__ import annotations

from typing import Any

from flexfloor.models.config import ModelConfig

VOCAB_SIZE = 2048
LATENT: dict[str, Any] = {
    "num_layers": 4,
    "first_k_dense_replace": 1,
    "hidden_size": 256,
    "ffn_hidden_size": 1024,
    "num_attention_heads": 4,
    "q_lora_rank": 128,
    "kv_lora_rank": 64,
    "qk_nope_head_dim": 64,
    "qk_rope_head_dim": 32,
    "v_head_dim": 64,
    "moe_ffn_hidden_size": 256,
    "num_experts": 16,
    "num_shared_experts": 1,
    "moe_router_topk": 4,
    "moe_router_num_groups": 4,
    "moe_router_group_topk": 2,
    "norm_eps": 1e-6,
}
"""What the DeepSeeks have in common."""
MODELS = {
    "mixtral": ModelConfig(
        num_layers=4,
        hidden_size=256,
        num_attention_heads=4,
        num_query_groups=2,
        moe_ffn_hidden_size=512,
        num_experts=8,
        moe_router_topk=2,
    ),
    "qwen3_moe": ModelConfig(
        family="qwen3_moe",
        num_layers=4,
        hidden_size=256,
        num_attention_heads=4,
        num_query_groups=2,
        head_dim=64,
        moe_ffn_hidden_size=256,
        num_experts=16,
        moe_router_topk=4,
        norm_eps=1e-6,
    ),
    "deepseek_v2": ModelConfig(
        family="deepseek_v2",
        **LATENT,
        norm_topk_prob=False,
        moe_router_group_experts=1,
        moe_router_topk_scaling_factor=1.0,
    ),
    "deepseek_v3": ModelConfig(
        family="deepseek_v3",
        **LATENT,
        moe_router_score_function="sigmoid",
        moe_router_topk_scaling_factor=2.5,
        moe_router_enable_expert_bias=True,
    ),
}
"""About 14M parameters each."""
