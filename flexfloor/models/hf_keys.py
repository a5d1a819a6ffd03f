"""Which key of a Hugging Face `config.json` says what a field of `ModelConfig` says, for each `model_type`.

A key that transformers leaves out, or calls otherwise in another version, is found all the same: `Key` lists
the names that it has had and the value that its absence means.

Invariants:
- A key that changes what the model computes is either read or required to have the value that ours has.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

REQUIRED = object()
"""Stands for the default of a key that must be there."""


@dataclass(frozen=True, slots=True)
class Key:
    """One key of config.json."""

    names: tuple[str, ...]
    """What it is called; the first is what we write."""
    kind: type
    """int, float or bool."""
    default: Any = REQUIRED
    """What its absence means; None where the key may be null."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HfFamily:
    """How one `model_type` is written."""

    architecture: str
    """transformers' class."""
    keys: dict[str, Key]
    """By field of ModelConfig."""
    fixed: dict[str, tuple[Any, ...]]
    """Keys that must have one of these values if they are there; the first is what their absence means."""
    settled: dict[str, Any] = field(default_factory=dict)
    """Fields of ModelConfig that every model of the type has alike."""
    is_latent: bool = False
    """Whether its attention is latent; only then may the angles be YaRN's."""


def _key(*names: str, kind: type = int, default: Any = REQUIRED) -> Key:
    return Key(names, kind, default)


_SHARED = {
    "num_layers": _key("num_hidden_layers"),
    "hidden_size": _key("hidden_size"),
    "num_attention_heads": _key("num_attention_heads"),
    "norm_eps": _key("rms_norm_eps", kind=float),
    "init_std": _key("initializer_range", kind=float, default=0.02),
    "tie_embeddings": _key("tie_word_embeddings", kind=bool, default=False),
    "num_experts": _key("num_local_experts", "num_experts", "n_routed_experts"),
    "moe_router_topk": _key("num_experts_per_tok"),
}
_FIXED = {
    "hidden_act": ("silu",),
    "attention_bias": (False,),
}
_GROUPED_QUERY = {
    "num_query_groups": _key("num_key_value_heads"),
    "head_dim": _key("head_dim", default=None),
}
_LATENT = _SHARED | {
    "num_experts": _key("n_routed_experts", "num_local_experts", "num_experts"),
    "ffn_hidden_size": _key("intermediate_size"),
    "moe_ffn_hidden_size": _key("moe_intermediate_size"),
    "first_k_dense_replace": _key("first_k_dense_replace", default=0),
    "num_shared_experts": _key("n_shared_experts", default=None),
    "q_lora_rank": _key("q_lora_rank", default=None),
    "kv_lora_rank": _key("kv_lora_rank"),
    "qk_nope_head_dim": _key("qk_nope_head_dim"),
    "qk_rope_head_dim": _key("qk_rope_head_dim"),
    "v_head_dim": _key("v_head_dim"),
    "moe_router_topk_scaling_factor": _key("routed_scaling_factor", kind=float, default=1.0),
    "moe_router_num_groups": _key("n_group", default=None),
    "moe_router_group_topk": _key("topk_group", default=None),
}
_LATENT_FIXED = _FIXED | {"moe_layer_freq": (1,), "mlp_bias": (False,), "rope_interleave": (True,)}

HF_FAMILIES = {
    "deepseek_v2": HfFamily(
        architecture="DeepseekV2ForCausalLM",
        keys=_LATENT,
        # transformers divides by the sum in no case, DeepSeek's own code where this says so
        fixed=_LATENT_FIXED | {"scoring_func": ("softmax",), "norm_topk_prob": (False,)},
        settled={"norm_topk_prob": False, "moe_router_group_experts": 1, "latent_norm_eps": 1e-6},
        is_latent=True,
    ),
    "deepseek_v3": HfFamily(
        architecture="DeepseekV3ForCausalLM",
        keys=_LATENT | {"norm_topk_prob": _key("norm_topk_prob", kind=bool, default=True)},
        fixed=_LATENT_FIXED | {"scoring_func": ("sigmoid",), "topk_method": ("noaux_tc",)},
        settled={
            "moe_router_score_function": "sigmoid",
            "moe_router_enable_expert_bias": True,
            "moe_router_group_experts": 2,
            "latent_norm_eps": 1e-6,
        },
        is_latent=True,
    ),
    "mixtral": HfFamily(
        architecture="MixtralForCausalLM",
        keys=_SHARED | _GROUPED_QUERY | {"moe_ffn_hidden_size": _key("intermediate_size")},
        fixed=_FIXED,
        settled={"norm_topk_prob": True},
    ),
    "qwen3_moe": HfFamily(
        architecture="Qwen3MoeForCausalLM",
        keys=_SHARED
        | _GROUPED_QUERY
        | {
            "num_experts": _key("num_experts", "num_local_experts"),
            "moe_ffn_hidden_size": _key("moe_intermediate_size"),
            "norm_topk_prob": _key("norm_topk_prob", kind=bool, default=False),
        },
        fixed=_FIXED
        | {"mlp_only_layers": ([], None), "decoder_sparse_step": (1,), "use_sliding_window": (False,)},
    ),
}
