"""A Hugging Face folder's `config.json` as fields of the `model` section, and back.

What config.json says and we do not compute, a bias of the attention say, is refused by its name: a model that
loads and means something else is the worst that could come of it.

Invariants:
- `read_hf_config` of what `write_hf_config` wrote gives the same model.
- Both forms of the rotary base are read: its own key, and in `rope_parameters` (transformers 5).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from flexfloor.errors import ConfigError
from flexfloor.models.config import ModelConfig
from flexfloor.models.hf_file import HfFile
from flexfloor.models.hf_keys import HF_FAMILIES, HfFamily

CONFIG_FILE = "config.json"
UNDETERMINED = ("path", "dtype", "moe_router_bias_update_rate")
"""Fields of ModelConfig of which config.json says nothing."""
_ARCHITECTURES = {
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HfModel:
    """What a config.json says."""

    fields: dict[str, object]
    """Fields of ModelConfig that config.json determines, `family` among them."""
    vocab_size: int
    """Rows of Hugging Face's embedding, not padded."""
    max_positions: int
    """Longest sequence that the model was made for."""
    mtp_layers: int
    """Layers of multi-token prediction behind the others; they are no part of our model."""


def read_hf_config(folder: Path) -> HfModel:
    """What `folder`/config.json says of a Mixtral, a Qwen3-MoE or a DeepSeek-V3.

    Raises ConfigError naming the folder, the key, its value and what is allowed.
    """
    file = HfFile.read(folder / CONFIG_FILE)
    name = file.one_of("model_type", HF_FAMILIES)
    family = HF_FAMILIES[name]
    for key, allowed in family.fixed.items():
        file.require_fixed(key, allowed)
    max_positions = file.number("max_position_embeddings", int)
    file.require_no_window(max_positions)
    found = _defaults() | family.settled | {ours: file.value(key) for ours, key in family.keys.items()}
    found |= {"family": name, "rope_theta": file.rope_theta()}
    found = _without_groups(found)
    file.check(lambda: ModelConfig(**found))
    return HfModel(
        fields=found,
        vocab_size=file.number("vocab_size", int),
        max_positions=max_positions,
        mtp_layers=file.number("num_nextn_predict_layers", int, default=0),
    )


def write_hf_config(folder: Path, model: ModelConfig, *, vocab_size: int, max_positions: int) -> None:
    """Write `folder`/config.json, in the form that transformers 4 and 5 read.

    Args:
        model: of a family that Hugging Face has.
        vocab_size: rows of the embedding.
        max_positions: longest sequence that the model is good for.
    """
    content = hf_content(model, vocab_size=vocab_size, max_positions=max_positions)
    text = json.dumps(content, indent=2, sort_keys=True) + "\n"
    (folder / CONFIG_FILE).write_text(text, encoding="utf-8")


def hf_content(model: ModelConfig, *, vocab_size: int, max_positions: int) -> dict[str, Any]:
    """The keys and values of the model's config.json; ConfigError if Hugging Face has no such model."""
    if model.family not in HF_FAMILIES:
        known = ", ".join(HF_FAMILIES)
        raise ConfigError(f"model.family = {model.family!r}: only {known} have a form of Hugging Face's")
    family = HF_FAMILIES[model.family]
    _require_settled(model, family)
    written = {key.names[0]: getattr(model, ours) for ours, key in family.keys.items()}
    return {
        "architectures": [_ARCHITECTURES[model.family]],
        "model_type": model.family,
        **{key: allowed[0] for key, allowed in family.fixed.items() if allowed[0] is not None},
        **written,
        **_by_kind(model),
        "rope_theta": model.rope_theta,
        "torch_dtype": model.dtype,
        "vocab_size": vocab_size,
        "max_position_embeddings": max_positions,
    }


def _defaults() -> dict[str, Any]:
    default = ModelConfig()
    return {f.name: getattr(default, f.name) for f in fields(ModelConfig) if f.name not in UNDETERMINED}


def _without_groups(found: dict[str, Any]) -> dict[str, Any]:
    """One group of all experts is no choice of groups."""
    if found["moe_router_num_groups"] in (None, 1):
        found |= {"moe_router_num_groups": None, "moe_router_group_topk": None}
    return found | {"num_shared_experts": found["num_shared_experts"] or 0}


def _by_kind(model: ModelConfig) -> dict[str, Any]:
    if model.kv_lora_rank is None:
        return {"sliding_window": None}
    return {
        "num_key_value_heads": model.num_attention_heads,
        "num_nextn_predict_layers": 0,
        "n_group": model.moe_router_num_groups or 1,
        "topk_group": model.moe_router_group_topk or 1,
        "routed_scaling_factor": model.moe_router_topk_scaling_factor or 1.0,
    }


def _require_settled(model: ModelConfig, family: HfFamily) -> None:
    """Fields that config.json has no key for must be what every model of the family has."""
    default = ModelConfig()
    for name in (f.name for f in fields(ModelConfig)):
        if name in UNDETERMINED or name in family.keys or name in ("family", "rope_theta"):
            continue
        has, wanted = getattr(model, name), family.settled.get(name, getattr(default, name))
        if has != wanted and (name, model.kv_lora_rank) != ("ffn_hidden_size", None):
            raise ConfigError(
                f"model.{name} = {has!r}: Hugging Face's {model.family} has no key for it and means {wanted!r}"
            )
