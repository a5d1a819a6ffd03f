"""The record of one patch: what it changes upstream, why, until when, and against which source.

Invariants:
- A record changes nothing by existing; only `megatron_patches.manager` binds it.
- A patch that builds on upstream's behaviour carries the hash of the source it was written against;
  a stand-in, which builds on none, carries no hash.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import ModuleType
from typing import Any

from flexfloor.errors import FlexFloorError


class PatchError(FlexFloorError):
    """A patch cannot be applied; the message starts with the patch's target."""


class UpstreamChanged(PatchError):
    """The code that a patch was written against is not the code that is installed."""


class PatchConflict(PatchError):
    """Two patches cannot both hold: two replacements of one target, or one undone out of order."""


class Kind(StrEnum):
    """How a patch treats what it finds at its target."""

    WRAPPER = "wrapper"
    """Calls the original; any number of wrappers stack on one target."""
    REPLACEMENT = "replacement"
    """Takes the original's place; one for a target."""
    DEFINITION = "definition"
    """Gives a value to a name that upstream reads and leaves undefined."""
    STAND_IN = "stand-in"
    """Answers for a device that the host lacks, whatever upstream's own code is; one for a target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """One change of one upstream attribute, as data."""

    target: str
    """`package.module:name` or `package.module:Class.name`."""
    why: str
    """What goes wrong upstream without it."""
    remove_when: str
    """What has to be true for the patch to go."""
    wrap: Callable[[Any], Any]
    """Gets the original (None for a definition) and returns what takes its place."""
    upstream_sha: Mapping[str, str]
    """Upstream version -> `source_sha` of the original there; empty for a stand-in. A supported version
    that is not named does without the patch: it has the fault no longer, or under another name."""
    kind: Kind = Kind.WRAPPER

    def __post_init__(self) -> None:
        hashed = bool(self.upstream_sha)
        assert hashed != (self.kind is Kind.STAND_IN), (self.target, self.kind, self.upstream_sha)

    @property
    def exclusive(self) -> bool:
        """Whether the patch discards the original, so that no second such patch may share its target."""
        return self.kind is not Kind.WRAPPER

    @property
    def module(self) -> str:
        """Name of the upstream module that holds the target."""
        return self.target.partition(":")[0]


def source_sha(original: Any, module: ModuleType) -> str:
    """First 12 hex digits of the SHA-256 of the source that `original` stands in.

    A function, method or class is its own source. Anything else (a flag, an imported module, a missing
    name) is only as stable as the code that reads it: then it is the source of the whole `module`.
    """
    function = getattr(original, "__func__", original)
    has_source = inspect.isfunction(function) or inspect.isclass(function)
    return hashlib.sha256(inspect.getsource(function if has_source else module).encode()).hexdigest()[:12]


def upstream_version(module: str) -> str:
    """Version of the distribution that `module` belongs to, as the code on the path states it.

    Without the local part: 0.19 appends the commit of whatever git checkout it is installed under.
    """
    package = "megatron.core" if module.startswith("megatron.") else module.partition(".")[0]
    return importlib.import_module(package).__version__.partition("+")[0]


def patches_for_version(patches: Iterable[Patch], version: str) -> tuple[Patch, ...]:
    """Those of `patches` that upstream's `version` needs; all of them when no record names the version.

    So an upstream that nobody has looked at is checked against every hash, and stops with a target.
    """
    patches = tuple(patches)
    if not any(version in patch.upstream_sha for patch in patches):
        return patches
    return tuple(patch for patch in patches if patch.kind is Kind.STAND_IN or version in patch.upstream_sha)
