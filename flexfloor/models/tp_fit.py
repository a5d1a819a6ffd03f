"""Which models tensor parallelism can cut evenly; pure, so that a setting is refused before ranks start."""

from __future__ import annotations

from flexfloor.checks import require
from flexfloor.models.config import ModelConfig


def check_tp_fit(model: ModelConfig, tp_size: int) -> None:
    """Raise ConfigError naming the field of `model` that `tp_size` ranks cannot share evenly."""
    if tp_size == 1:
        return
    names = ["num_attention_heads"]
    if model.kv_lora_rank is None:
        names.append("num_query_groups")
    elif model.q_lora_rank is not None:
        names.append("q_lora_rank")
    if model.first_k_dense_replace:
        names.append("ffn_hidden_size")
    if model.vocab_size is not None:
        names.append("vocab_size")
    for name in names:
        _require_multiple(f"model.{name}", getattr(model, name), tp_size)
    if model.shared_ffn_hidden_size is not None:
        field = "model.num_shared_experts * model.moe_ffn_hidden_size"
        _require_multiple(field, model.shared_ffn_hidden_size, tp_size)
    if model.kv_lora_rank is not None:
        width = model.kv_lora_rank + model.qk_rope_head_dim
        _require_multiple("model.kv_lora_rank + model.qk_rope_head_dim", width, tp_size)


def check_vocabulary_fit(rows: int, tp_size: int) -> None:
    """Raise ConfigError unless `tp_size` ranks can share the embedding's `rows` evenly."""
    more = -rows % tp_size
    allowed = f"a multiple of parallel.tp = {tp_size}; model.vocab_size={rows + more} leaves {more} unused"
    require(not more, "model.vocab_size", rows, allowed)


def _require_multiple(field: str, value: int, tp_size: int) -> None:
    require(value % tp_size == 0, field, value, f"a multiple of parallel.tp = {tp_size}")
