"""What a model is made of, as a user writes it in a recipe; the same fields for every family."""

from __future__ import annotations

from dataclasses import dataclass

from flexfloor.checks import require

DTYPE_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2}


@dataclass(kw_only=True)
class ModelConfig:
    """Shape of one mixture-of-experts transformer."""

    family: str = "mixtral"
    """Name under which a family is registered (`flexfloor.models.registry`)."""
    num_layers: int = 4
    hidden_size: int = 128
    num_attention_heads: int = 4
    num_query_groups: int = 2
    """Key/value heads; grouped-query attention when fewer than the query heads."""
    head_dim: int | None = None
    """Channels of one head; hidden_size / num_attention_heads when not given."""
    kv_lora_rank: int | None = None
    """Channels of the key-value latent; given, attention is multi-head latent attention (MLA)."""
    qk_rope_head_dim: int = 16
    """MLA: channels of the key that are rotated and shared by all heads."""
    moe_ffn_hidden_size: int = 256
    """Inner width of one expert."""
    num_experts: int = 8
    moe_router_topk: int = 2
    """Experts that each token visits."""
    norm_topk_prob: bool = True
    """Divide the probabilities of a token's experts by their sum; false = as the softmax over all gives."""
    rope_theta: float = 10_000.0
    norm_eps: float = 1e-5
    init_std: float = 0.02
    tie_embeddings: bool = False
    dtype: str = "float32"

    def __post_init__(self) -> None:
        for name in ("num_layers", "hidden_size", "num_attention_heads", "num_query_groups"):
            require(getattr(self, name) > 0, f"model.{name}", getattr(self, name), "a positive integer")
        for name in ("moe_ffn_hidden_size", "num_experts"):
            require(getattr(self, name) > 0, f"model.{name}", getattr(self, name), "a positive integer")
        require(
            self.moe_ffn_hidden_size > 0, "model.moe_ffn_hidden_size", self.moe_ffn_hidden_size, "positive"
        )
        require(self.dtype in DTYPE_BYTES, "model.dtype", self.dtype, f"one of {', '.join(DTYPE_BYTES)}")
        require(
            self.num_attention_heads % self.num_query_groups == 0,
            "model.num_query_groups",
            self.num_query_groups,
            f"a divisor of model.num_attention_heads = {self.num_attention_heads}",
        )
        require(
            self.head_dim is not None or self.hidden_size % self.num_attention_heads == 0,
            "model.num_attention_heads",
            self.num_attention_heads,
            f"a divisor of model.hidden_size = {self.hidden_size} unless model.head_dim is given",
        )
        require(
            self.channels_per_head % 2 == 0, "model.head_dim", self.channels_per_head, "even (rotary pairs)"
        )
        require(
            1 <= self.moe_router_topk <= self.num_experts,
            "model.moe_router_topk",
            self.moe_router_topk,
            f"between 1 and model.num_experts = {self.num_experts}",
        )
        require(
            self.moe_router_topk > 1 or not self.norm_topk_prob,
            "model.moe_router_topk",
            self.moe_router_topk,
            "2 or more unless model.norm_topk_prob=false: divided by itself, a probability teaches nothing",
        )
        for name in ("rope_theta", "norm_eps", "init_std"):
            require(getattr(self, name) > 0, f"model.{name}", getattr(self, name), "positive")

    @property
    def channels_per_head(self) -> int:
        """Channels of one attention head."""
        return self.head_dim or self.hidden_size // self.num_attention_heads
