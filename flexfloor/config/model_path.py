"""`model.path`: the `model` section of a run as a Hugging Face folder's config.json has it.

What the recipe or the command line sets must agree with config.json; what they leave alone is taken from it.
A field counts as left alone when nothing sets it, or when files leave it as the model has it which
every run starts from.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from omegaconf import MISSING, DictConfig, OmegaConf

from flexfloor.checks import require, shown
from flexfloor.config.tree import Config
from flexfloor.models.config import ModelConfig
from flexfloor.models.hf_config import CONFIG_FILE, HfModel, read_hf_config
from flexfloor.models.hf_keys import HF_FAMILIES


def unwritten_schema() -> DictConfig:
    """The schema of a configuration in which fields of the model are missing until something sets them."""
    schema = OmegaConf.structured(Config)
    for name, _ in _leaves(dataclasses.asdict(ModelConfig())):
        OmegaConf.update(schema, name, MISSING)
    return schema


def fill_model(
    composed: DictConfig,
    *,
    written: Callable[[], DictConfig],
    base: Callable[[], DictConfig],
    named: Collection[str],
) -> None:
    """Fill `composed.model` from the folder `model.path`, if there is one.

    Args:
        composed: the whole configuration, before its types are checked.
        written: composes the same with `unwritten_schema`.
        base: composes so what a run starts from without recipe and overrides.
        named: full names of the fields that the command line sets.

    Raises ConfigError naming a key of config.json that we do not know, a field that is set to something else,
    or lengths beyond the model's positions.
    """
    path = OmegaConf.select(composed, "model.path")
    if not path or composed.model.family not in HF_FAMILIES:
        return  # a family of the user's own, whose section is the user's too
    file = Path(path).expanduser() / CONFIG_FILE
    found = read_hf_config(file.parent)
    here, start = written(), base()
    for name, wanted in _leaves(found.fields):
        has = OmegaConf.select(composed, name)
        set_to = _written(here, name)
        is_unset = name not in named and (set_to == MISSING or set_to == _written(start, name))
        allowed = f"{shown(wanted)} as {file} says, or left out"
        require(has == wanted or is_unset, name, has, allowed)
        OmegaConf.update(composed, name, wanted)
    _check_positions(composed, found, file)


def _written(config: DictConfig, name: str) -> Any:
    """The value of a field, `MISSING` where nothing sets it."""
    section, _, key = name.rpartition(".")
    node = OmegaConf.select(config, section)
    return MISSING if OmegaConf.is_missing(node, key) else node[key]


def _leaves(node: Mapping[str, object], prefix: str = "model") -> Iterator[tuple[str, Any]]:
    """Full name and plain value of every field, those of sections within among them."""
    for key, value in node.items():
        name = f"{prefix}.{key}"
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            value = dataclasses.asdict(value)
        if isinstance(value, dict):
            yield from _leaves(value, name)
        else:
            yield name, value


def _check_positions(composed: DictConfig, found: HfModel, file: Path) -> None:
    prompt, response = composed.data.max_prompt_length, composed.data.max_response_length
    allowed = (
        f"at most {found.max_positions - prompt}: with data.max_prompt_length = {prompt} that is "
        f"max_position_embeddings = {found.max_positions} of {file}"
    )
    require(prompt + response <= found.max_positions, "data.max_response_length", response, allowed)
