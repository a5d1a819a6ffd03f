"""Shapes of published models, as the simulator needs them: bytes and numbers of parameters.

Everything is computed from the architecture's own numbers, by the arithmetic that FlexFloor uses for the
models that it builds.

Invariants:
- Sums of parameters equal the published totals and active totals within 2 %.
- Bytes of weights and of a cached token are those of bfloat16.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from flexfloor.doctor.parameters import dense_parameters, expert_parameters, recomputed_parameters
from flexfloor.models.config import DTYPE_BYTES, ModelConfig
from flexfloor.rollout.kv_shape import model_kv_bytes_per_token


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """What a pass over a mixture-of-experts model reads, computes and sends."""

    name: str
    num_layers: int
    num_moe_layers: int
    hidden_size: int
    num_experts: int
    top_k: int
    """Routed experts that each token visits."""
    vocab_size: int
    dense_parameters: int
    """All but the routed experts', in every replica."""
    expert_parameters: int
    """One routed expert's, over all layers."""
    expert_row_numbers: int
    """Numbers that one row takes inside of its experts."""
    weight_bytes: int
    """Of one number."""
    kv_token_bytes: int
    """One token in the KV cache, in all heads."""
    kv_heads: int | None
    """Key/value heads, which ranks of a replica share out; None = latents, which each of them has."""
    recomputed_parameters: int
    """That a token meets once more in training."""

    @property
    def routed_bytes(self) -> int:
        """Weights of all routed experts."""
        return self.num_experts * self.expert_bytes

    @property
    def expert_bytes(self) -> int:
        """Weights of one routed expert, over all layers."""
        return self.expert_parameters * self.weight_bytes

    @property
    def dense_bytes(self) -> int:
        """Weights of all but the routed experts."""
        return self.dense_parameters * self.weight_bytes

    @property
    def read_parameters(self) -> int:
        """Parameters that every pass reads and every token multiplies with: all dense ones but the input
        embedding, of which a token looks up one row."""
        return self.dense_parameters - self.vocab_size * self.hidden_size

    @property
    def active_parameters(self) -> int:
        """Parameters that a token visits, the published "activated" number."""
        return self.dense_parameters + self.top_k * self.expert_parameters

    @property
    def total_parameters(self) -> int:
        """All parameters."""
        return self.dense_parameters + self.num_experts * self.expert_parameters

    def kv_bytes_on_rank(self, tp: int) -> int:
        """One token in the KV cache of each of a replica's `tp` ranks."""
        return self.kv_token_bytes if self.kv_heads is None else self.kv_token_bytes // tp


def shape_of(name: str, model: ModelConfig, vocab_size: int, recompute: str = "none") -> ModelShape:
    """The shape of any model that FlexFloor can build, trained with that recomputation."""
    return ModelShape(
        name=name,
        num_layers=model.num_layers,
        num_moe_layers=model.num_moe_layers,
        hidden_size=model.hidden_size,
        num_experts=model.num_experts,
        top_k=model.moe_router_topk,
        vocab_size=vocab_size,
        dense_parameters=dense_parameters(model, vocab_size),
        expert_parameters=expert_parameters(model),
        expert_row_numbers=model.moe_router_topk * (4 * model.hidden_size + 6 * model.moe_ffn_hidden_size),
        weight_bytes=DTYPE_BYTES[model.dtype],
        kv_token_bytes=model_kv_bytes_per_token(model),
        kv_heads=model.num_query_groups if model.kv_lora_rank is None else None,
        recomputed_parameters=recomputed_parameters(model, recompute),
    )


def _mixtral_8x7b() -> ModelShape:
    """Jiang et al., "Mixtral of Experts", arXiv 2401.04088, table 1: 47B parameters, 13B active."""
    model = ModelConfig(
        family="mixtral",
        num_layers=32,
        hidden_size=4096,
        num_attention_heads=32,
        num_query_groups=8,
        moe_ffn_hidden_size=14336,
        num_experts=8,
        moe_router_topk=2,
        dtype="bfloat16",
    )
    return shape_of("mixtral-8x7b", model, 32_000)


def _deepseek_v2_lite() -> ModelShape:
    """DeepSeek-AI, "DeepSeek-V2", arXiv 2405.04434, appendix B: 15.7B parameters, 2.4B active."""
    model = ModelConfig(
        family="deepseek_v3",
        num_layers=27,
        hidden_size=2048,
        num_attention_heads=16,
        kv_lora_rank=512,
        qk_nope_head_dim=128,
        qk_rope_head_dim=64,
        v_head_dim=128,
        first_k_dense_replace=1,
        ffn_hidden_size=10944,
        num_shared_experts=2,
        moe_ffn_hidden_size=1408,
        num_experts=64,
        moe_router_topk=6,
        dtype="bfloat16",
    )
    return shape_of("deepseek-v2-lite", model, 102_400)


def _deepseek_v3() -> ModelShape:
    """DeepSeek-AI, "DeepSeek-V3", arXiv 2412.19437, section 4.2: 671B parameters, 37B active."""
    model = ModelConfig(
        family="deepseek_v3",
        num_layers=61,
        hidden_size=7168,
        num_attention_heads=128,
        q_lora_rank=1536,
        kv_lora_rank=512,
        qk_nope_head_dim=128,
        qk_rope_head_dim=64,
        v_head_dim=128,
        first_k_dense_replace=3,
        ffn_hidden_size=18432,
        num_shared_experts=1,
        moe_ffn_hidden_size=2048,
        num_experts=256,
        moe_router_topk=8,
        dtype="bfloat16",
    )
    return shape_of("deepseek-v3", model, 129_280)


def _qwen3_30b_a3b() -> ModelShape:
    """Qwen Team, "Qwen3 Technical Report", arXiv 2505.09388, table 2; 30.5B parameters, 3.3B active."""
    return _qwen3("qwen3-30b-a3b", layers=48, hidden=2048, heads=32, inner=768)


def _qwen3_235b_a22b() -> ModelShape:
    """As the smaller one: 235B parameters, 22B active."""
    return _qwen3("qwen3-235b-a22b", layers=94, hidden=4096, heads=64, inner=1536)


def _qwen3(name: str, *, layers: int, hidden: int, heads: int, inner: int) -> ModelShape:
    model = ModelConfig(
        family="qwen3_moe",
        num_layers=layers,
        hidden_size=hidden,
        num_attention_heads=heads,
        num_query_groups=4,
        head_dim=128,
        moe_ffn_hidden_size=inner,
        num_experts=128,
        moe_router_topk=8,
        dtype="bfloat16",
    )
    return shape_of(name, model, 151_936)


MODELS: Mapping[str, ModelShape] = MappingProxyType(
    {
        shape.name: shape
        for shape in (
            _mixtral_8x7b(),
            _deepseek_v2_lite(),
            _deepseek_v3(),
            _qwen3_30b_a3b(),
            _qwen3_235b_a22b(),
        )
    }
)
"""By the name that `simulate.model` takes."""
