"""Model families by name.

A family says how a `ModelConfig` becomes Megatron's `TransformerConfig` and block spec. The shipped
ones are found by their short name, a user's own one as `model.family=package.module:Class`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Protocol

from flexfloor.errors import ConfigError
from flexfloor.models.config import ModelConfig
from flexfloor.names import did_you_mean

if TYPE_CHECKING:
    from megatron.core.transformer.transformer_block import TransformerBlockSubmodules
    from megatron.core.transformer.transformer_config import TransformerConfig

    from flexfloor.models.weights.weight_map import WeightMap


class ModelFamily(Protocol):
    """What a family provides."""

    def transformer_config(self, model: ModelConfig, *, ep_size: int) -> TransformerConfig:
        """Megatron's configuration for `model` with its experts spread over `ep_size` ranks."""
        ...

    def block_spec(self, config: TransformerConfig) -> TransformerBlockSubmodules:
        """Megatron's specification of the layers, with FlexFloor's modules in them."""
        ...

    def weight_map(self, model: ModelConfig) -> WeightMap:
        """Hugging Face's names of the weights of `model`; needed to take weights and to write them."""
        ...


_FAMILIES = {
    "deepseek_v2": "flexfloor.models.deepseek_v2:DeepseekV2",
    "deepseek_v3": "flexfloor.models.deepseek_v3:DeepseekV3",
    "mixtral": "flexfloor.models.mixtral:Mixtral",
    "qwen3_moe": "flexfloor.models.qwen3_moe:Qwen3Moe",
}


def register_family(name: str, path: str) -> None:
    """Make the class at `path` ("package.module:Class") available as `model.family=name`.

    Raises ConfigError when `name` stands for another class already.
    """
    if _FAMILIES.setdefault(name, path) != path:
        raise ConfigError(f"model family {name!r} is {_FAMILIES[name]} already and cannot become {path}")


def family_path(name: str) -> str:
    """The "package.module:Class" that `name` stands for, or is.

    Raises ConfigError naming the nearest family.
    """
    path = _FAMILIES.get(name, name)
    if ":" not in path:
        known = ", ".join(sorted(_FAMILIES))
        hint = did_you_mean(name, _FAMILIES)
        raise ConfigError(f"model.family = {name!r}: must be {known} or package.module:Class; {hint}")
    return path


def get_family(name: str) -> ModelFamily:
    """The family of a registered name or of a "package.module:Class" path.

    Raises ConfigError naming the nearest family, or what could not be imported.
    """
    module_name, _, class_name = family_path(name).partition(":")
    try:
        return getattr(importlib.import_module(module_name), class_name)()
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"model.family = {name!r}: cannot be imported: {error}") from error


def weight_map_of(model: ModelConfig) -> WeightMap:
    """The weight map of the model's family.

    Raises ConfigError when the family, a user's own one, has none.
    """
    family = get_family(model.family)
    if not hasattr(family, "weight_map"):
        raise ConfigError(f"model.family = {model.family!r}: it has no weight_map, which names its weights")
    return family.weight_map(model)
