"""Small random models of transformers, saved as the hub has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

VOCAB, POSITIONS = 48, 64
COMMON = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": POSITIONS,
    "initializer_range": 0.2,
    "num_experts_per_tok": 2,
}
LATENT = {
    "num_key_value_heads": 4,
    "num_hidden_layers": 3,
    "first_k_dense_replace": 1,
    "intermediate_size": 40,
    "moe_intermediate_size": 24,
    "n_routed_experts": 8,
    "n_shared_experts": 2,
    "n_group": 4,
    "topk_group": 2,
    "num_experts_per_tok": 4,
    "routed_scaling_factor": 1.6,
    "q_lora_rank": 20,
    "kv_lora_rank": 12,
    "qk_nope_head_dim": 10,
    "qk_rope_head_dim": 6,
    "v_head_dim": 14,
}
KINDS: dict[str, dict[str, Any]] = {
    "mixtral": {"model_type": "mixtral", "intermediate_size": 48, "num_local_experts": 4},
    "qwen3_moe": {
        "model_type": "qwen3_moe",
        "moe_intermediate_size": 24,
        "num_experts": 8,
        "head_dim": 12,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    },
    "deepseek_v3": {"model_type": "deepseek_v3", **LATENT},
    "deepseek_v3, whole queries": {"model_type": "deepseek_v3", **LATENT, "q_lora_rank": None},
    "deepseek_v2": {
        "model_type": "deepseek_v2",
        **LATENT,
        "norm_topk_prob": False,
        "topk_method": "group_limited_greedy",
    },
    "mixtral, tied": {
        "model_type": "mixtral",
        "intermediate_size": 48,
        "num_local_experts": 4,
        "tie_word_embeddings": True,
    },
}


def hf_model(kind: str, dtype: torch.dtype = torch.float32, **changes: Any) -> Any:
    """A model of `KINDS`; norms and biases are random too, so that none can be mixed up."""
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(7)
    config = AutoConfig.for_model(**COMMON | KINDS[kind] | changes)
    model = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            if name.endswith("e_score_correction_bias"):
                tensor.uniform_(-0.2, 0.2)
            elif tensor.dim() == 1 and "inv_freq" not in name:
                tensor.add_(torch.randn(tensor.shape), alpha=0.2)
    return model.to(dtype)


def save(model: Any, folder: Path, max_shard_size: str = "40KB") -> Path:
    """Write `model` as the hub has it, in several files."""
    model.save_pretrained(folder, max_shard_size=max_shard_size)
    return folder


def tensors_in(folder: Path) -> dict[str, torch.Tensor]:
    """All tensors of a folder, read by safetensors' own reader; each must be in one file only."""
    from safetensors.torch import load_file

    found: dict[str, torch.Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        of_file = load_file(file)
        assert not of_file.keys() & found.keys(), file
        found |= of_file
    return found


def saved_with_logits(folder, num_tokens):
    """Of each kind of model, its folder in `folder` and its logits [T, V] of the first tokens, as float64."""
    found, ids = {}, torch.arange(num_tokens) % VOCAB
    for kind in KINDS:
        model = hf_model(kind)
        with torch.no_grad():
            logits = model(ids[None]).logits[0].double().numpy()
        found[kind] = (save(model, folder / kind), logits)
    return found
