"""Megatron's configurations with what FlexFloor's own layers need to know besides."""

from __future__ import annotations

from dataclasses import dataclass

from megatron.core.transformer.transformer_config import MLATransformerConfig, TransformerConfig


@dataclass
class MoEConfig(TransformerConfig):
    """Of a model of grouped-query attention."""

    moe_router_group_experts: int | None = None
    """Best experts of a group whose scores are its own; None = Megatron's rule."""


@dataclass
class LatentConfig(MLATransformerConfig):
    """Of a model of latent attention."""

    moe_router_group_experts: int | None = None
    """Best experts of a group whose scores are its own; None = Megatron's rule."""
    latent_norm_eps: float = 1e-6
    """Epsilon of the norms of latents."""
