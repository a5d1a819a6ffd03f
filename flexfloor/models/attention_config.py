"""The attention of a model, as fields of the `model` section.

Grouped-query attention unless `kv_lora_rank` is given, which makes it multi-head latent attention (MLA):
DeepSeek-AI, "DeepSeek-V2", arXiv 2405.04434. The names are those of Hugging Face's configurations.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from flexfloor.checks import require
from flexfloor.models.rope_config import RopeScaling


@dataclass(kw_only=True)
class AttentionFields:
    """Heads, latents and rotary angles."""

    hidden_size: int = 128
    num_attention_heads: int = 4
    num_query_groups: int = 2
    """Key/value heads; grouped-query attention when fewer than the query heads. MLA has none."""
    head_dim: int | None = None
    """Channels of one head; hidden_size / num_attention_heads when not given. MLA has its own below."""
    q_lora_rank: int | None = None
    """MLA: channels of the query latent; without it queries are projected in one step."""
    kv_lora_rank: int | None = None
    """MLA: channels of the key-value latent, which the KV cache keeps instead of keys and values."""
    qk_nope_head_dim: int = 32
    """MLA: channels of a head's query and key that carry no position."""
    qk_rope_head_dim: int = 16
    """MLA: channels that are rotated; the key's are shared by all heads."""
    v_head_dim: int = 32
    """MLA: channels of a head's value."""
    latent_norm_eps: float | None = None
    """MLA: epsilon of the latents' norms, norm_eps when not given; Hugging Face's DeepSeek has 1e-6."""
    rope_theta: float = 10_000.0
    rope_scaling: RopeScaling = field(default_factory=RopeScaling)
    """MLA: YaRN's longer sequences."""

    def check_attention(self) -> None:
        """Raise ConfigError naming the field that cannot be."""
        for name in ("hidden_size", "num_attention_heads", "num_query_groups", "rope_theta"):
            require(getattr(self, name) > 0, f"model.{name}", getattr(self, name), "positive")
        for name in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"):
            require(getattr(self, name) > 0, f"model.{name}", getattr(self, name), "a positive integer")
        if self.kv_lora_rank is None:
            self._check_heads()
        else:
            self._check_latents()

    def _check_heads(self) -> None:
        heads = self.num_attention_heads
        for name in ("q_lora_rank", "latent_norm_eps"):
            value = getattr(self, name)
            require(value is None, f"model.{name}", value, "null without kv_lora_rank")
        factor = self.rope_scaling.factor
        require(factor is None, "model.rope_scaling.factor", factor, "null without kv_lora_rank")
        require(
            heads % self.num_query_groups == 0,
            "model.num_query_groups",
            self.num_query_groups,
            f"a divisor of model.num_attention_heads = {heads}",
        )
        require(
            self.head_dim is not None or self.hidden_size % heads == 0,
            "model.num_attention_heads",
            heads,
            f"a divisor of model.hidden_size = {self.hidden_size} unless model.head_dim is given",
        )
        require(
            self.channels_per_head % 2 == 0, "model.head_dim", self.channels_per_head, "even (rotary pairs)"
        )

    def _check_latents(self) -> None:
        for name in ("q_lora_rank", "kv_lora_rank"):
            value = getattr(self, name)
            require(value is None or value > 0, f"model.{name}", value, "a positive integer")
        eps = self.latent_norm_eps
        require(eps is None or eps > 0, "model.latent_norm_eps", eps, "positive")
        require(self.head_dim is None, "model.head_dim", self.head_dim, "null with kv_lora_rank (MLA)")
        rotated = self.qk_rope_head_dim
        require(rotated % 2 == 0, "model.qk_rope_head_dim", rotated, "even (rotary pairs)")

    @property
    def channels_per_head(self) -> int:
        """Channels of one query head."""
        if self.kv_lora_rank is not None:
            return self.qk_nope_head_dim + self.qk_rope_head_dim
        return self.head_dim or self.hidden_size // self.num_attention_heads
