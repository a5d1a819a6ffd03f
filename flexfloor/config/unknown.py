"""What is said about a field that does not exist: the nearest that do."""

from __future__ import annotations

from flexfloor.config.fields import RECIPE, all_fields, is_known, is_section, names_in
from flexfloor.errors import ConfigError
from flexfloor.names import nearest


def unknown_field(name: str) -> ConfigError:
    """The complaint about a field that does not exist, with the nearest that do."""
    section, wrong, rest = _split_at_fault(name)
    inside = [*names_in(section), *([] if section else [RECIPE])]
    near = [_joined(section, other, rest) for other in nearest(wrong, inside)] or _same_ending(name, section)
    if near:
        return ConfigError(f"{name}: no such field; did you mean {' or '.join(near)}?")
    return ConfigError(f"{name}: no such field; {section or 'the top level'} has {', '.join(inside)}")


def _same_ending(name: str, section: str) -> list[str]:
    """The fields that share the longest ending with `name`; those of `section` alone where it has some."""
    parts = name.split(".")
    for start in range(len(parts)):
        tail = ".".join(parts[start:])
        found = [known for known in all_fields() if f".{known}".endswith(f".{tail}")]
        if found:
            return [known for known in found if known.startswith(f"{section}.")] or found
    return []


def _split_at_fault(name: str) -> tuple[str, str, str]:
    """The deepest section that exists, the first part that it lacks, and what follows."""
    parts = name.split(".")
    depth = max(depth for depth in range(len(parts)) if depth == 0 or is_section(".".join(parts[:depth])))
    return ".".join(parts[:depth]), parts[depth], ".".join(parts[depth + 1 :])


def _joined(section: str, name: str, rest: str) -> str:
    nearby = f"{section}.{name}" if section else name
    return f"{nearby}.{rest}" if is_known(f"{nearby}.{rest}") else nearby
