"""Bind patches to the upstream they name, all or none, and take them off again.

Invariants:
- Every patch of a list is checked before the first attribute changes: a refused list changes nothing.
- The hash is taken of the pristine original, however many wrappers lie on it.
- A module that imported the original by value (`from m import f`) sees the patch, and sees the original
  again after the undo, also when it was imported in between.
- Undoing leaves each attribute with the identical object it had before.
"""

from __future__ import annotations

import importlib
import inspect
import logging
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from megatron_patches.patch import Kind, Patch, PatchConflict, UpstreamChanged, source_sha, upstream_version

logger = logging.getLogger(__name__)

_MISSING = object()


@dataclass(slots=True, kw_only=True)
class _Slot:
    """What an attribute held at first, what lies on it, and what it holds now."""

    owner: Any
    name: str
    pristine: Any
    value: Any
    patches: list[Patch] = field(default_factory=list)

    def copy(self) -> _Slot:
        return _Slot(owner=self.owner, name=self.name, pristine=self.pristine, value=self.value,
                     patches=list(self.patches))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Application:
    """A list of patches that holds; `undo` takes exactly this list off."""

    patches: tuple[Patch, ...]
    _before: dict[str, _Slot]
    _after: dict[str, _Slot]

    def undo(self) -> None:
        """Take these patches off. Raises `PatchConflict` while a later list still lies on them."""
        if not _applications or _applications[-1] is not self:
            raise PatchConflict(f"{self.patches[0].target}: undone out of order, or twice")
        _applications.pop()
        _bind(self._after, self._before)


_slots: dict[str, _Slot] = {}
_applications: list[Application] = []


def apply(patches: Iterable[Patch]) -> Application:
    """Check and bind `patches` in order, with a log line each.

    Raises:
        UpstreamChanged: a target is gone or its source is none of the hashes on record.
        PatchConflict: a second patch would discard what another already put in an original's place.
    """
    patches = tuple(patches)
    before: dict[str, _Slot] = {}
    after: dict[str, _Slot] = {}
    for patch in patches:
        if patch.target not in after:
            before[patch.target] = _slots.get(patch.target) or _open_slot(patch)
            after[patch.target] = before[patch.target].copy()
        _stack(patch, after[patch.target])
    _bind(before, after)
    application = Application(patches, before, after)
    _applications.append(application)
    for patch in patches:
        logger.info("patch %s (%s): %s", patch.target, patch.kind.value, patch.why)
    return application


def verify(patch: Patch) -> None:
    """Check the patch's target as `apply` would, and change nothing.

    Raises:
        UpstreamChanged: the target is gone or its source is none of the hashes on record.
    """
    slot = _slots.get(patch.target) or _open_slot(patch)
    _check_source(patch, slot.pristine)


@contextmanager
def applied(patches: Iterable[Patch]) -> Iterator[Application]:
    """Hold `patches` for the length of a `with` block."""
    application = apply(patches)
    try:
        yield application
    finally:
        application.undo()


def _open_slot(patch: Patch) -> _Slot:
    module, _, path = patch.target.partition(":")
    *parents, name = path.split(".")
    owner: Any = importlib.import_module(module)
    for parent in parents:
        owner = getattr(owner, parent, None)
    original = vars(owner).get(name, _MISSING) if owner is not None else _MISSING
    if (original is _MISSING) != (patch.kind is Kind.DEFINITION):
        found = "is gone" if original is _MISSING else "is defined by now"
        raise UpstreamChanged(f"{patch.target}: {found} in version {upstream_version(module)}")
    return _Slot(owner=owner, name=name, pristine=original, value=original)


def _stack(patch: Patch, slot: _Slot) -> None:
    _check_source(patch, slot.pristine)
    if patch.exclusive and slot.patches:
        raise PatchConflict(f"{patch.target}: a {patch.kind.value} would discard a patch that holds already")
    wrapped_type = type(slot.value) if isinstance(slot.value, staticmethod | classmethod) else None
    original = None if slot.value is _MISSING else getattr(slot.value, "__func__", slot.value)
    replacement = patch.wrap(original)
    slot.value = wrapped_type(replacement) if wrapped_type else replacement
    slot.patches.append(patch)


def _check_source(patch: Patch, pristine: Any) -> None:
    if patch.kind is Kind.STAND_IN:
        return
    sha = source_sha(pristine, sys.modules[patch.module])
    if sha not in patch.upstream_sha.values():
        known = ", ".join(f"{version}: {known}" for version, known in patch.upstream_sha.items())
        raise UpstreamChanged(
            f"{patch.target}: the source in version {upstream_version(patch.module)} hashes to {sha}, "
            f"the patch was written against {known}"
        )


def _bind(old: dict[str, _Slot], new: dict[str, _Slot]) -> None:
    by_identity: dict[int, tuple[Any, str | None]] = {}
    for target, slot in new.items():
        was = old[target].value
        if slot.value is _MISSING:
            delattr(slot.owner, slot.name)
        else:
            setattr(slot.owner, slot.name, slot.value)
        if inspect.isfunction(was) or inspect.isclass(was):
            by_identity[id(was)] = (slot.value, None if was is slot.pristine else _home(was))
        if slot.patches:
            _slots[target] = slot
        else:
            _slots.pop(target, None)
    _rebind_imports(by_identity)


def _home(replacement: Any) -> str:
    """Name of the module whose text holds `replacement`; `functools.wraps` hides it in `__module__`."""
    return replacement.__globals__["__name__"] if inspect.isfunction(replacement) else replacement.__module__


def _rebind_imports(by_identity: dict[int, tuple[Any, str | None]]) -> None:
    """Swap each object for its successor wherever a module holds it, except in the one it is at home in."""
    # __dict__ and not getattr: lazy modules import themselves when probed.
    for module_name, module in list(sys.modules.items()):
        names = getattr(module, "__dict__", None) or {}
        for name, value in list(names.items()):
            successor, home = by_identity.get(id(value), (None, module_name))
            if home != module_name:
                names[name] = successor
