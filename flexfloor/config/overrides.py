"""The `name=value` words of the command line, looked at before Hydra applies them.

Hydra would add a misspelled name that is written with `+`, and its complaints show its own inside;
here each word is named with what is wrong about it.
"""

from __future__ import annotations

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException

from flexfloor.checks import shown
from flexfloor.config.fields import RECIPE, is_free, is_known, is_list, is_mapping, is_section, kind_of
from flexfloor.config.unknown import unknown_field
from flexfloor.errors import ConfigError


def checked(words: list[str]) -> list[str]:
    """The overrides in the form that Hydra takes; `ConfigError` for one that cannot be meant."""
    return [_checked(word) for word in words]


def _checked(word: str) -> str:
    override = parsed(word)
    name, value = override.key_or_group, override.value()
    if name.split(".")[0] == "hydra":
        raise ConfigError(f"{word}: Hydra's own settings have no effect here")
    if override.is_sweep_override():
        several = "write a list as name=[a,b] and text as name='a,b'; -m runs a job for each value"
        raise ConfigError(f"{word}: one value is needed; {several}")
    if name != RECIPE and not is_known(name):
        raise unknown_field(name)
    if name == RECIPE or is_section(name):
        return _checked_choice(override, word)
    if override.is_delete():
        raise ConfigError(f"{word}: a field cannot be removed, only set: {name}=value")
    if is_list(name) and isinstance(value, str) and not value.startswith("${"):
        name, _, single = word.partition("=")
        return f"{name}=[{single}]"
    in_mapping = is_free(name) or (is_mapping(name) and isinstance(value, dict))
    adds_to_mapping = in_mapping and not override.is_add() and not override.is_force_add()
    return f"++{word}" if adds_to_mapping else word


def _checked_choice(override: Override, word: str) -> str:
    """A word that picks a file of a group, or gives a section's fields as a mapping."""
    name, value = override.key_or_group, override.value()
    picks = value if isinstance(value, list) else [value]
    if picks and all(isinstance(pick, str) and pick for pick in picks):
        return word
    if name == RECIPE:
        raise ConfigError(f"{word}: must be recipe=<name of a recipe>; leave it out for none")
    if not isinstance(value, dict):
        raise ConfigError(f"{name} = {shown(value)}: must be {kind_of(name)}")
    return word


def parsed(word: str, loader: ConfigLoader | None = None) -> Override:
    """`word` as Hydra reads it, `ConfigError` if it cannot; `loader` finds what `name=glob(*)` stands for."""
    if word.startswith("=") or ("=" not in word and not word.startswith("~")):
        raise ConfigError(f"{word!r}: a setting is written name=value, a recipe recipe=name")
    try:
        override = OverridesParser.create().parse_override(word)
        override.config_loader = loader
        return override
    except HydraException as error:
        reason = str(error).partition("\n")[2].partition("\nSee http")[0] or str(error)
        hint = "quotes keep a value with signs in it together: name='a=b, c'"
        raise ConfigError(f"{word!r} is not a setting name=value: {reason}; {hint}") from None
