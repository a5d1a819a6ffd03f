"""What the KV cache keeps of one token.

Grouped-query attention keeps a key and a value for each key/value head of each layer, a rank those of its own
heads. Multi-head latent
attention (DeepSeek-AI, "DeepSeek-V2", arXiv 2405.04434) keeps one row a layer that all heads share: the
compressed key-value latent and the rotated key channels, on every rank of a replica.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flexfloor.models.config import DTYPE_BYTES, ModelConfig

if TYPE_CHECKING:
    from megatron.core.transformer.transformer_config import TransformerConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class KVShape:
    """Numbers that one token takes in the cache of a rank."""

    num_layers: int
    num_planes: int
    """Tensors kept by a layer: 2, keys and values, or 1, latents."""
    num_groups: int
    """Rows of a plane: the key/value heads, or 1."""
    head_dim: int
    """Channels of a row."""

    def bytes_per_token(self, dtype_bytes: int) -> int:
        """Bytes that one cached token takes with numbers of `dtype_bytes` bytes."""
        return self.num_layers * self.num_planes * self.num_groups * self.head_dim * dtype_bytes


def heads_shape(*, num_layers: int, num_groups: int, head_dim: int) -> KVShape:
    """Of grouped-query attention."""
    return KVShape(num_layers=num_layers, num_planes=2, num_groups=num_groups, head_dim=head_dim)


def latent_shape(*, num_layers: int, kv_lora_rank: int, qk_rope_head_dim: int) -> KVShape:
    """Of multi-head latent attention."""
    return KVShape(
        num_layers=num_layers, num_planes=1, num_groups=1, head_dim=kv_lora_rank + qk_rope_head_dim
    )


def model_kv_shape(model: ModelConfig, tp_size: int = 1) -> KVShape:
    """Of a rank of a model as its settings describe it, whose heads are spread over `tp_size` ranks."""
    if model.kv_lora_rank is not None:
        return latent_shape(
            num_layers=model.num_layers,
            kv_lora_rank=model.kv_lora_rank,
            qk_rope_head_dim=model.qk_rope_head_dim,
        )
    return heads_shape(
        num_layers=model.num_layers,
        num_groups=model.num_query_groups // tp_size,
        head_dim=model.channels_per_head,
    )


def model_kv_bytes_per_token(model: ModelConfig, tp_size: int = 1) -> int:
    """Bytes that one cached token of the model takes on a rank."""
    return model_kv_shape(model, tp_size).bytes_per_token(DTYPE_BYTES[model.dtype])


def kv_shape(config: TransformerConfig) -> KVShape:
    """Of a rank of a model that was built with `config`."""
    if config.multi_latent_attention:
        return latent_shape(
            num_layers=config.num_layers,
            kv_lora_rank=config.kv_lora_rank,
            qk_rope_head_dim=config.qk_pos_emb_head_dim,
        )
    return heads_shape(
        num_layers=config.num_layers,
        num_groups=config.num_query_groups // config.tensor_model_parallel_size,
        head_dim=config.kv_channels,
    )
