"""What one cached token takes, against published model shapes."""

from __future__ import annotations

import pytest

from flexfloor.models.config import ModelConfig
from flexfloor.rollout.kv_shape import heads_shape, latent_shape, model_kv_bytes_per_token

MIXTRAL_8X7B = {"num_layers": 32, "num_groups": 8, "head_dim": 128}
QWEN3_30B = {"num_layers": 48, "num_groups": 4, "head_dim": 128}


@pytest.mark.parametrize(("model", "published"), [(MIXTRAL_8X7B, 131_072), (QWEN3_30B, 98_304)])
def test_bytes_per_token_are_those_of_published_models(model: dict[str, int], published: int) -> None:
    assert heads_shape(**model).bytes_per_token(2) == published
    assert heads_shape(**model).bytes_per_token(8) == 4 * published


@pytest.mark.parametrize(("num_layers", "published"), [(27, 31_104), (61, 70_272)])
def test_latents_take_the_bytes_of_published_models(num_layers: int, published: int) -> None:
    """DeepSeek-V2-Lite and DeepSeek-V3: a latent of 512 channels and a rotated key of 64."""
    shape = latent_shape(num_layers=num_layers, kv_lora_rank=512, qk_rope_head_dim=64)
    assert shape.bytes_per_token(2) == published


def test_a_model_with_a_latent_rank_keeps_latents() -> None:
    model = ModelConfig(family="deepseek_v3", num_layers=3, kv_lora_rank=8, qk_rope_head_dim=4)
    assert model_kv_bytes_per_token(model) == 3 * (8 + 4) * 4
    assert model_kv_bytes_per_token(ModelConfig(num_layers=3)) == 3 * 2 * 2 * 32 * 4


def test_a_rank_of_a_replica_keeps_its_own_heads_and_whole_latents() -> None:
    assert model_kv_bytes_per_token(ModelConfig(num_layers=3), tp_size=2) == 3 * 2 * 1 * 32 * 4
    model = ModelConfig(family="deepseek_v3", num_layers=3, kv_lora_rank=8, qk_rope_head_dim=4)
    assert model_kv_bytes_per_token(model, tp_size=2) == 3 * (8 + 4) * 4
