"""From a recipe's name and a few overrides to the typed configuration, by Hydra.

Invariants:
- Whatever the overrides are, the answer is a valid `Config` or a `ConfigError` that fits one screen.
- What `to_yaml` prints, composed again, gives the same `Config`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from hydra import compose as hydra_compose
from hydra import initialize_config_module
from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from flexfloor.checks import require
from flexfloor.config.complaint import COMPLAINTS, as_config_error
from flexfloor.config.fields import is_container, is_section, kind_of
from flexfloor.config.model_path import fill_model, unwritten_schema
from flexfloor.config.overrides import checked, parsed
from flexfloor.config.tree import Config
from flexfloor.config.validate import validate
from flexfloor.errors import ConfigError

CONFIG_MODULE = "flexfloor.conf"


def compose(
    overrides: list[str], config_dir: Path | None = None, *, check: Callable[[Config], None] = validate
) -> Config:
    """The configuration that `overrides` (Hydra's `name=value` words) describe, checked.

    Args:
        overrides: e.g. `["recipe=tiny-mixtral", "rollout.n=4"]`.
        config_dir: folder with further group folders (`recipe/`, `model/`, ...), besides the shipped ones.
        check: what must hold beyond each section's own checks.

    Raises:
        ConfigError: an unknown recipe or field, a value of the wrong kind or out of range, or
            settings that do not fit each other.
    """
    words = [*checked(overrides), *_search(config_dir)]
    try:
        composed = _composed(words)
    except COMPLAINTS as error:
        raise as_config_error(error) from None
    _check_containers(OmegaConf.to_container(composed), "")
    fill_model(
        composed,
        written=lambda: _composed(words, unwritten_schema()),
        base=lambda: _composed(_search(config_dir), unwritten_schema()),
        named=_named(overrides),
    )
    config = _typed(composed)
    check(config)
    return config


def to_yaml(config: Config) -> str:
    """`config` as YAML, every field written out."""
    return OmegaConf.to_yaml(OmegaConf.structured(config))


def _search(config_dir: Path | None) -> list[str]:
    if config_dir is None:
        return []
    if not config_dir.is_dir():
        raise ConfigError(f"--config-dir {config_dir}: there is no such folder")
    folder = str(config_dir.resolve()).replace("'", "\\'")
    return [f"hydra.searchpath=['file://{folder}']"]


def _composed(words: list[str], schema: type[Config] | DictConfig = Config) -> DictConfig:
    ConfigStore.instance().store(name="schema", node=schema, provider="flexfloor")
    with initialize_config_module(CONFIG_MODULE, version_base="1.3"):
        return hydra_compose("config", words)


def _named(overrides: list[str]) -> set[str]:
    """Full names of the fields that `overrides` set one by one."""
    return {parsed(word).key_or_group for word in overrides}


def _typed(composed: DictConfig) -> Config:
    try:
        config = OmegaConf.to_object(composed)
    except OmegaConfBaseException as error:
        raise as_config_error(error) from None
    assert isinstance(config, Config), type(config)
    return config


def _check_containers(node: Any, prefix: str) -> None:
    """Only a plain value may refer to another field: OmegaConf checks no type behind a reference to more."""
    assert isinstance(node, dict), node
    for key, value in node.items():
        name = f"{prefix}{key}"
        require(not is_container(name) or isinstance(value, dict | list), name, value, kind_of(name))
        if is_section(name):
            _check_containers(value, f"{name}.")
