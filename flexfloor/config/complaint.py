"""What Hydra and OmegaConf complain about, said in the words of our fields."""

from __future__ import annotations

import re
import textwrap

from hydra.errors import HydraException, MissingConfigException
from omegaconf import Node
from omegaconf.errors import (
    ConfigAttributeError,
    ConfigKeyError,
    InterpolationResolutionError,
    MissingMandatoryValue,
    OmegaConfBaseException,
)
from yaml import YAMLError

from flexfloor.checks import shown
from flexfloor.config.fields import RECIPE, full_name, is_known, kind_of
from flexfloor.config.unknown import unknown_field
from flexfloor.errors import ConfigError
from flexfloor.names import did_you_mean

COMPLAINTS = (HydraException, OmegaConfBaseException, YAMLError, ValueError)
"""What composing raises for what a user can mend; ValueError: a file that is no text or has odd defaults"""
_MAX_LINES = 8
_MAX_CHARACTERS = 200


def as_config_error(error: Exception) -> ConfigError:
    """The complaint of `error`, one of `COMPLAINTS`, as a `ConfigError` that names the field or the file."""
    for cause in _causes(error):
        if isinstance(cause, MissingConfigException) and cause.missing_cfg_file:
            return _missing_file(cause)
        if isinstance(cause, OmegaConfBaseException) and cause.full_key:
            return ConfigError(_place(error) + _bad_field(cause))
    lines = [line for line in str(error).splitlines() if line.strip()]
    return ConfigError("\n".join(lines[:_MAX_LINES]))


def _causes(error: BaseException | None) -> list[BaseException]:
    return [*_causes(error.__cause__ or error.__context__), error] if error is not None else []


def _place(error: Exception) -> str:
    """The file that an error comes from, as "In 'recipe/mine': "; empty when it comes from an override."""
    place = re.match(r"In '[^']+': ", str(error))
    return place.group() if place else ""


def _missing_file(error: MissingConfigException) -> ConfigError:
    group, _, name = str(error.missing_cfg_file).rpartition("/")
    if not group:
        return ConfigError(f"no configuration file {name}")
    hint = did_you_mean(name, error.options or [])
    return ConfigError(f"{group} = {name}: no such {group}; {hint}")


def _bad_field(error: OmegaConfBaseException) -> str:
    name = full_name(str(error.full_key), error.ref_type)
    if isinstance(error, InterpolationResolutionError):
        return f"{name}: {textwrap.shorten(str(error.msg).partition('full_key')[0], _MAX_CHARACTERS)}"
    if isinstance(error, MissingMandatoryValue):
        return f"{name}: has no value, must be {kind_of(name)}"
    if name == RECIPE:
        return "the first line of a recipe must be: # @package _global_"
    if isinstance(error, ConfigKeyError | ConfigAttributeError) and not is_known(name):
        return str(unknown_field(name))
    value = str(error.value) if isinstance(error.value, Node) else shown(error.value)
    return f"{name} = {value}: must be {kind_of(name)}"
