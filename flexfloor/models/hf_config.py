"""A Hugging Face folder's `config.json` as fields of the `model` section, and back.

What config.json says and we do not compute, a bias of the attention say, is refused by its name: a model that
loads and means something else is the worst that could come of it.

Invariants:
- `read_hf_config` of what `write_hf_config` wrote gives a model that computes the same.
- A field of ModelConfig is either determined by config.json or listed in `UNDETERMINED`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from flexfloor.checks import require
from flexfloor.models.config import ModelConfig
from flexfloor.models.hf_file import HfFile
from flexfloor.models.hf_keys import HF_FAMILIES, HfFamily, Key
from flexfloor.models.hf_quantization import read_weight_block
from flexfloor.models.hf_rope import read_rope, rope_content

CONFIG_FILE = "config.json"
UNDETERMINED = ("path", "dtype", "moe_router_bias_update_rate")
"""Fields of ModelConfig of which config.json says nothing."""
GREEDY, LIMITED = "greedy", "group_limited_greedy"
"""DeepSeek-V2's ways to choose experts: from all, or from the best groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HfModel:
    """What a config.json says."""

    fields: dict[str, Any]
    """Fields of ModelConfig that config.json determines, `family` among them."""
    vocab_size: int
    """Rows of Hugging Face's embedding, not padded."""
    max_positions: int
    """Longest sequence that the model was made for."""
    mtp_layers: int
    """Layers of multi-token prediction behind the others; they are no part of our model."""
    weight_block: tuple[int, int] | None
    """Rows and columns that share a scale, of weights in FP8; None = they are plain."""


def read_hf_config(folder: Path) -> HfModel:
    """What `folder`/config.json says of a Mixtral, a Qwen3-MoE, a DeepSeek-V2 or a DeepSeek-V3.

    Raises ConfigError naming the folder, the key, its value and what is allowed.
    """
    file = HfFile.read(folder / CONFIG_FILE)
    name = file.one_of("model_type", HF_FAMILIES)
    family = HF_FAMILIES[name]
    for key, allowed in family.fixed.items():
        file.require_fixed(key, allowed)
    max_positions = file.value(Key(("max_position_embeddings",), int))
    _require_no_window(file, max_positions)
    found = _defaults() | family.settled | {ours: file.value(key) for ours, key in family.keys.items()}
    found |= {"family": name, "vocab_size": file.value(Key(("vocab_size",), int))}
    found |= read_rope(file, may_scale=family.is_latent)
    if family.is_latent:
        found |= _experts(file, found)
    file.built(lambda: ModelConfig(**found))
    return HfModel(
        fields=found,
        vocab_size=found["vocab_size"],
        max_positions=max_positions,
        mtp_layers=file.value(Key(("num_nextn_predict_layers", "num_mtp_layers"), int, 0)),
        weight_block=read_weight_block(file),
    )


def weight_block_in(folder: Path) -> tuple[int, int] | None:
    """`HfModel.weight_block` of a model of any type; None too where there is no config.json.

    Raises ConfigError naming the key, its value and what is allowed.
    """
    path = folder / CONFIG_FILE
    return read_weight_block(HfFile.read(path)) if path.exists() else None


def write_hf_config(folder: Path, model: ModelConfig, *, vocab_size: int, max_positions: int) -> None:
    """Write `folder`/config.json, in the form that transformers 4 and 5 read.

    Args:
        model: of a family that Hugging Face has; ConfigError if it means what no config.json can say.
        vocab_size: rows of the embedding.
        max_positions: longest sequence that the model is good for.
    """
    content = hf_content(model, vocab_size=vocab_size, max_positions=max_positions)
    text = json.dumps(content, indent=2, sort_keys=True) + "\n"
    (folder / CONFIG_FILE).write_text(text, encoding="utf-8")


def hf_content(model: ModelConfig, *, vocab_size: int, max_positions: int) -> dict[str, Any]:
    """The keys and values of the model's config.json; ConfigError if Hugging Face has no such model."""
    require(model.family in HF_FAMILIES, "model.family", model.family, f"one of {', '.join(HF_FAMILIES)}")
    family = HF_FAMILIES[model.family]
    _require_settled(model, family)
    return {
        "architectures": [family.architecture],
        "model_type": model.family,
        **{key: allowed[0] for key, allowed in family.fixed.items() if allowed[0] is not None},
        **{key.names[0]: getattr(model, ours) for ours, key in family.keys.items()},
        **(_latent_content(model) if family.is_latent else _grouped_content(model)),
        **rope_content(model.rope_theta, model.rope_scaling),
        "torch_dtype": model.dtype,
        "vocab_size": vocab_size,
        "max_position_embeddings": max_positions,
    }


def _defaults() -> dict[str, Any]:
    default = ModelConfig()
    return {f.name: getattr(default, f.name) for f in fields(ModelConfig) if f.name not in UNDETERMINED}


def _require_no_window(file: HfFile, max_positions: int) -> None:
    window = file.value(Key(("sliding_window",), int, None))
    if window is not None and file.content.get("use_sliding_window") is not False:
        allowed = f"null, or max_position_embeddings = {max_positions} or more: all positions are attended"
        require(window >= max_positions, file.field("sliding_window"), window, allowed)


def _experts(file: HfFile, found: dict[str, Any]) -> dict[str, Any]:
    """DeepSeek's shared experts and groups: one group of all experts is no choice of groups."""
    heads = found["num_attention_heads"]
    file.require_fixed("num_key_value_heads", (heads, None))
    chosen = {"num_shared_experts": found["num_shared_experts"] or 0}
    limited = found["moe_router_num_groups"] not in (None, 1)
    if found["family"] == "deepseek_v2":
        method = file.one_of("topk_method", (GREEDY, LIMITED), default=GREEDY)
        limited = limited and method == LIMITED
    if not limited:
        chosen |= dict.fromkeys(
            ("moe_router_num_groups", "moe_router_group_topk", "moe_router_group_experts")
        )
    return chosen


def _grouped_content(model: ModelConfig) -> dict[str, Any]:
    # Some releases of transformers take a null for the size of a head.
    return {"head_dim": model.channels_per_head, "sliding_window": None}


def _latent_content(model: ModelConfig) -> dict[str, Any]:
    content: dict[str, Any] = {
        "num_key_value_heads": model.num_attention_heads,
        "num_nextn_predict_layers": 0,
        "n_group": model.moe_router_num_groups or 1,
        "topk_group": model.moe_router_group_topk or 1,
        "routed_scaling_factor": model.moe_router_topk_scaling_factor or 1.0,
    }
    if model.family == "deepseek_v2":
        content["topk_method"] = LIMITED if model.moe_router_num_groups else GREEDY
    return content


def _require_settled(model: ModelConfig, family: HfFamily) -> None:
    """Raise ConfigError for a field that config.json has no key for and that is not what it then means."""
    means = _defaults() | family.settled
    if model.moe_router_num_groups in (None, model.moe_router_group_topk):
        means["moe_router_group_experts"] = model.counted_group_experts
    has = {name: getattr(model, name) for name in means}
    has["moe_router_group_experts"] = model.counted_group_experts
    if family.is_latent:
        has["latent_norm_eps"] = model.latent_norm_eps or model.norm_eps
    ignored = {"family", "vocab_size", "rope_theta", "rope_scaling", *family.keys, *_without_effect(family)}
    for name in has.keys() - ignored:
        allowed = f"{means[name]!r}, as every {model.family} of Hugging Face's has it"
        require(has[name] == means[name], f"model.{name}", has[name], allowed)


def _without_effect(family: HfFamily) -> tuple[str, ...]:
    if family.is_latent:
        return ("num_query_groups",)
    return ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "ffn_hidden_size")
