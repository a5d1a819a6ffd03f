"""What a model is made of, as a user writes it in a recipe; the same fields for every family."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from flexfloor.checks import require
from flexfloor.models.attention_config import AttentionFields
from flexfloor.models.expert_config import ExpertFields

DTYPE_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2}
LATENT_FAMILIES = ("deepseek_v2", "deepseek_v3")
GROUPED_QUERY_FAMILIES = ("mixtral", "qwen3_moe")
BACKENDS = ("auto", "torch")


@dataclass(kw_only=True)
class ModelConfig(AttentionFields, ExpertFields):
    """Shape of one mixture-of-experts transformer."""

    family: str = "mixtral"
    """Name under which a family is registered (`flexfloor.models.registry`)."""
    path: str | None = None
    """Hugging Face folder whose config.json and weights the model takes."""
    vocab_size: int | None = None
    """Rows of the embedding; as many as the tokenizer has tokens when not given. Further ones stay unused."""
    num_layers: int = 4
    norm_eps: float = 1e-5
    init_std: float = 0.02
    tie_embeddings: bool = False
    dtype: str = "float32"
    backend: str = "auto"
    """What layers are made of. `torch`: PyTorch and Megatron-Core, with experts in grouped products on a GPU
    and one by one on a CPU. `auto` takes the best that there is, which is `torch`: no other is there yet"""

    def __post_init__(self) -> None:
        require(self.num_layers > 0, "model.num_layers", self.num_layers, "a positive integer")
        require(self.dtype in DTYPE_BYTES, "model.dtype", self.dtype, f"one of {', '.join(DTYPE_BYTES)}")
        allowed = (
            f"{' or '.join(BACKENDS)}; te, for Transformer Engine's layers, is not there yet (docs/gpu.md)"
        )
        require(self.backend in BACKENDS, "model.backend", self.backend, allowed)
        for name in ("norm_eps", "init_std"):
            require(getattr(self, name) > 0, f"model.{name}", getattr(self, name), "positive")
        require(self.path != "", "model.path", self.path, "a folder, or null")
        rows = self.vocab_size
        require(rows is None or rows > 0, "model.vocab_size", rows, "a positive integer, or null")
        self._check_family()
        self.check_attention()
        self.check_experts(self.num_layers)

    def _check_family(self) -> None:
        rank = self.kv_lora_rank
        if self.family in LATENT_FAMILIES:
            require(rank is not None, "model.kv_lora_rank", rank, f"given for model.family={self.family}")
        if self.family in GROUPED_QUERY_FAMILIES:
            require(rank is None, "model.kv_lora_rank", rank, f"null for model.family={self.family}")

    def identity(self) -> dict[str, Any]:
        """What makes it another model: all fields but where its weights come from and what computes."""
        named = dataclasses.asdict(self)
        del named["path"], named["backend"]
        return named | ({} if self.rope_scaling.is_on else {"rope_scaling": None})

    @property
    def num_moe_layers(self) -> int:
        """Layers with experts."""
        return self.num_layers - self.first_k_dense_replace
