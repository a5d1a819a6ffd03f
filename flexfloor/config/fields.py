"""The names and kinds of all fields, read off the typed sections.

An element of a list is written `[]`: `data.tasks[].weight`. Below a field that holds a mapping
every name is allowed.

Invariants:
- A name is known exactly when a section has such a field.
"""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Iterator
from functools import cache
from typing import Any

from flexfloor.config.tree import Config

RECIPE = "recipe"
"""Group of the files that hold a whole run's differences; the only one that is no section."""
_KINDS = {
    float: ("a number", "numbers"),
    int: ("a whole number", "whole numbers"),
    bool: ("true or false", "true or false"),
    str: ("text", "texts"),
}


@cache
def all_fields() -> dict[str, Any]:
    """The declared type of every field, sections and elements of lists among them, by full name."""
    return dict(_walk(Config, ""))


def is_known(name: str) -> bool:
    """Whether a section has the field `name` (dotted), or it lies below a mapping."""
    return _normal(name) in all_fields() or is_free(name)


def is_section(name: str) -> bool:
    """Whether `name` is a field that itself has fields."""
    return dataclasses.is_dataclass(all_fields().get(_normal(name)))


def is_list(name: str) -> bool:
    """Whether the field `name` holds a list."""
    return typing.get_origin(all_fields().get(_normal(name))) is list


def is_mapping(name: str) -> bool:
    """Whether the field `name` holds a mapping, below which every name is allowed."""
    return typing.get_origin(all_fields().get(_normal(name))) is dict


def is_container(name: str) -> bool:
    """Whether the field `name` holds more than one plain value: a section, a list or a mapping."""
    return is_section(name) or is_list(name) or is_mapping(name)


def is_free(name: str) -> bool:
    """Whether `name` lies below a field that holds a mapping, where every name is allowed."""
    parts = _normal(name).split(".")
    above = (".".join(parts[:end]) for end in range(1, len(parts)))
    return any(is_mapping(name) for name in above)


def kind_of(name: str) -> str:
    """What a value of the field `name` must be, in words."""
    return _describe(all_fields()[_normal(name)]) if _normal(name) in all_fields() else "something else"


def full_name(key: str, section: Any) -> str:
    """The full name of `key`, which OmegaConf gives for an element of a list from its `section` on only."""
    top, *below = re.split(r"[.\[]", key)
    starts_at_top = bool(below) and top in names_in("")
    homes = [name for name, kind in all_fields().items() if name.endswith("[]") and kind is section]
    return f"{homes[0]}.{key}" if homes and not starts_at_top else key


def names_in(section: str) -> list[str]:
    """Own names of the fields of `section`; empty section = the top level."""
    split = [name.rpartition(".") for name in all_fields()]
    return [own for above, _, own in split if above == _normal(section) and not own.endswith("[]")]


def _normal(name: str) -> str:
    return re.sub(r"\[\d*\]|\.\d+(?=\.|$)", "[]", name)


def _walk(section: type, prefix: str) -> Iterator[tuple[str, Any]]:
    kinds = typing.get_type_hints(section)
    for field in dataclasses.fields(section):
        yield from _walk_field(prefix + field.name, kinds[field.name])


def _walk_field(name: str, kind: Any) -> Iterator[tuple[str, Any]]:
    yield name, kind
    if typing.get_origin(kind) is list:
        yield from _walk_field(f"{name}[]", typing.get_args(kind)[0])
    elif isinstance(kind, type) and dataclasses.is_dataclass(kind):
        yield from _walk(kind, f"{name}.")


def _describe(kind: Any) -> str:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        inner = [_describe(arg) for arg in args if arg is not types.NoneType]
        return f"{' or '.join(inner)}, or null"
    if origin is list:
        many = _KINDS[args[0]][1] if args[0] in _KINDS else "sections, each {field: value, ...}"
        return f"a list [...] of {many}"
    if origin is dict:
        return "a mapping {name: value, ...}"
    return _KINDS[kind][0] if kind in _KINDS else "a section, set by its fields: section.field=value"
