"""Rotary angles stretched beyond the length of a model's first training, a part of the `model` section.

The names are those of Hugging Face's `rope_scaling` of type `yarn`. Source: Peng et al., "YaRN",
arXiv 2309.00071.
"""

from __future__ import annotations

from dataclasses import dataclass

from flexfloor.checks import require, require_range


@dataclass(kw_only=True)
class RopeScaling:
    """YaRN's settings; without `factor` the angles are plain ones."""

    factor: float | None = None
    """how many times longer sequences may be than `original_max_position_embeddings`; null = no scaling"""
    original_max_position_embeddings: int | None = None
    """longest sequence before the angles were stretched; given with `factor`, or neither"""
    beta_fast: float = 32.0
    """channels that turn so often or more within the original length keep their angles"""
    beta_slow: float = 1.0
    """channels that turn so often or less have theirs divided by `factor`; between the two they are mixed"""
    mscale: float = 1.0
    """weight of log(factor) in what rotated channels are multiplied by"""
    mscale_all_dim: float = 0.0
    """weight of log(factor) in what scores are multiplied by, divided out of rotated channels; 0 = neither"""

    def __post_init__(self) -> None:
        original, name = self.original_max_position_embeddings, "model.rope_scaling."
        allowed = f"given with factor, or neither: factor is {self.factor}"
        both = (original is None) == (self.factor is None)
        require(both, name + "original_max_position_embeddings", original, allowed)
        if self.factor is not None and original is not None:
            require_range(name + "factor", self.factor, above=1)
            require_range(name + "original_max_position_embeddings", original, 1)
        require_range(name + "beta_slow", self.beta_slow, above=0)
        require_range(name + "beta_fast", self.beta_fast, self.beta_slow)
        require_range(name + "mscale_all_dim", self.mscale_all_dim, 0)
        require_range(name + "mscale", self.mscale, above=0)
        # Megatron's and transformers' readings of the pair part ways there.
        allowed = "1 unless mscale_all_dim is given as well"
        require(self.mscale == 1 or self.mscale_all_dim > 0, name + "mscale", self.mscale, allowed)

    @property
    def is_on(self) -> bool:
        """Whether angles are scaled at all."""
        return self.factor is not None
