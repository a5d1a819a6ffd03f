"""config.json files as the six models' makers released them, at the size of a test.

All keys are those of the released files that say something of the model, in their form of transformers 4;
only sizes, the spread of the weights and the lengths are smaller.
"""

import json
from pathlib import Path

VOCAB = 48

_COMMON = {
    "hidden_act": "silu",
    "hidden_size": 32,
    "initializer_range": 0.2,
    "max_position_embeddings": 640,
    "num_attention_heads": 4,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": VOCAB,
}
_DEEPSEEK = _COMMON | {
    "attention_bias": False,
    "aux_loss_alpha": 0.001,
    "ep_size": 1,
    "first_k_dense_replace": 1,
    "intermediate_size": 40,
    "kv_lora_rank": 12,
    "moe_intermediate_size": 24,
    "moe_layer_freq": 1,
    "num_hidden_layers": 3,
    "num_key_value_heads": 4,
    "qk_nope_head_dim": 10,
    "qk_rope_head_dim": 8,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000,
    "seq_aux": True,
    "v_head_dim": 14,
}
_YARN = {
    "beta_fast": 0.2,
    "beta_slow": 0.02,
    "factor": 40,
    "original_max_position_embeddings": 16,
    "type": "yarn",
}
"""Stretches lengths of 16 to 640, the released ones 4,096 to 163,840; by these betas one of the four angles
is mixed, as by the released ones, 32 and 1, a third of the 32 are."""
_V2 = _DEEPSEEK | {
    "model_type": "deepseek_v2",
    "n_shared_experts": 2,
    "norm_topk_prob": False,
    "num_experts_per_tok": 6,
    "scoring_func": "softmax",
}
_V3 = _DEEPSEEK | {
    "model_type": "deepseek_v3",
    "norm_topk_prob": True,
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
}

RELEASED = {
    "Mixtral": _COMMON
    | {
        "model_type": "mixtral",
        "intermediate_size": 48,
        "num_experts_per_tok": 2,
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "num_local_experts": 8,
        "output_router_logits": False,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1000000.0,
        "sliding_window": None,
    },
    "Qwen3-MoE": _COMMON
    | {
        "model_type": "qwen3_moe",
        "attention_bias": False,
        "decoder_sparse_step": 1,
        "head_dim": 12,
        "intermediate_size": 96,
        "max_window_layers": 2,
        "mlp_only_layers": [],
        "moe_intermediate_size": 24,
        "norm_topk_prob": True,
        "num_experts": 12,
        "num_experts_per_tok": 3,
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-6,
        "rope_scaling": None,
        "rope_theta": 1000000.0,
        "sliding_window": None,
        "use_sliding_window": False,
    },
    "DeepSeek-V2": _V2
    | {
        "n_group": 8,
        "n_routed_experts": 24,
        "q_lora_rank": 20,
        "rope_scaling": _YARN | {"mscale": 0.707, "mscale_all_dim": 0.707},
        "routed_scaling_factor": 16.0,
        "topk_group": 3,
        "topk_method": "group_limited_greedy",
    },
    "DeepSeek-V2-Lite": _V2
    | {
        "n_group": 1,
        "n_routed_experts": 16,
        "q_lora_rank": None,
        "rope_scaling": _YARN | {"mscale": 0.707, "mscale_all_dim": 0.707},
        "routed_scaling_factor": 1.0,
        "topk_group": 1,
        "topk_method": "greedy",
    },
    "DeepSeek-V3": _V3
    | {
        "n_group": 8,
        "n_routed_experts": 24,
        "n_shared_experts": 1,
        "num_experts_per_tok": 8,
        "num_nextn_predict_layers": 1,
        "q_lora_rank": 20,
        "rope_scaling": _YARN | {"mscale": 1.0, "mscale_all_dim": 1.0},
        "routed_scaling_factor": 2.5,
        "topk_group": 4,
    },
    "Moonlight": _V3
    | {
        "n_group": 1,
        "n_routed_experts": 16,
        "n_shared_experts": 2,
        "num_experts_per_tok": 6,
        "num_nextn_predict_layers": 0,
        "q_lora_rank": None,
        "rms_norm_eps": 1e-5,
        "rope_theta": 50000.0,
        "routed_scaling_factor": 2.446,
        "topk_group": 1,
    },
}
BY_TRANSFORMERS_5 = "DeepSeek-V3, saved by transformers 5"
"""It keeps the base beside the scaling; without mscale_all_dim the rotated channels are multiplied."""
RELEASED[BY_TRANSFORMERS_5] = {
    **{
        key: value
        for key, value in RELEASED["DeepSeek-V3"].items()
        if key not in ("rope_theta", "rope_scaling")
    },
    "rope_parameters": _YARN | {"rope_type": "yarn", "rope_theta": 30000.5, "mscale": 1.0},
}


def write(folder, name, **changes):
    """`folder` with the config.json of the model `name`, some keys changed."""
    (Path(folder) / "config.json").write_text(json.dumps(RELEASED[name] | changes))
    return Path(folder)
