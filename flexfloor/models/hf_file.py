"""The content of one config.json, and complaints about it that name file, key, value and what is allowed."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from flexfloor.checks import require, shown
from flexfloor.errors import ConfigError
from flexfloor.models.hf_keys import REQUIRED, Key
from flexfloor.names import did_you_mean

T = TypeVar("T")
_WORDS = {int: "a whole number", float: "a number", bool: "true or false"}


@dataclass(frozen=True, slots=True)
class HfFile:
    """A config.json that has been read."""

    path: Path
    content: dict[str, Any]
    prefix: str = ""
    """What complaints put before a key: the name of the object that holds it."""

    @classmethod
    def read(cls, path: Path) -> HfFile:
        """Raises ConfigError for a file that is not there or no JSON object."""
        if not path.is_file():
            raise ConfigError(f"model.path = {str(path.parent)!r}: holds no {path.name}")
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(f"model.path: {path} cannot be read: {error.strerror}") from None
        except ValueError as error:
            raise ConfigError(f"model.path: {path} is no JSON: {error}") from None
        if not isinstance(content, dict):
            raise ConfigError(f"model.path: {path} is no JSON object")
        return cls(path, content)

    def field(self, name: str) -> str:
        """`name` as complaints call it."""
        return f"model.path: {self.path}: {self.prefix}{name}"

    def one_of(self, name: str, known: Collection[str], *, default: str | None = None) -> str:
        """The value of `name`, which must be one of `known`."""
        value = self.content.get(name) or default
        if value not in known:
            hint = did_you_mean(str(value), known)
            listed = ", ".join(sorted(known))
            raise ConfigError(f"{self.field(name)} = {shown(value)}: must be one of {listed}; {hint}")
        return str(value)

    def require_fixed(self, name: str, allowed: tuple[Any, ...]) -> None:
        """`name` must have one of the values `allowed`; its absence means the first."""
        value = self.content.get(name, allowed[0])
        words = " or ".join(shown(each) for each in allowed)
        require(value in allowed, self.field(name), value, f"{words}: nothing else is known here")

    def value(self, key: Key) -> Any:
        """The value of `key` under the first of its names that is there, as its kind."""
        present = [name for name in key.names if name in self.content]
        if not present:
            if key.default is REQUIRED:
                raise ConfigError(f"{self.field(' or '.join(key.names))}: is missing")
            return key.default
        value = self.content[present[0]]
        if value is None and key.default is None:
            return None
        return self._typed(present[0], value, key.kind)

    def inside(self, name: str) -> HfFile:
        """The object under `name`, an empty one where it is absent or null; its keys are named after it."""
        value = self.content.get(name) or {}
        require(isinstance(value, dict), self.field(name), value, "an object or null")
        return HfFile(self.path, value, f"{self.prefix}{name}.")

    def built(self, build: Callable[[], T]) -> T:
        """What `build` makes of values of this file, which its complaints then name."""
        try:
            return build()
        except ConfigError as error:
            raise ConfigError(f"model.path: {self.path}: {error}") from None

    def _typed(self, name: str, value: Any, kind: type) -> Any:
        fits = isinstance(value, bool) == (kind is bool) and isinstance(value, (int, kind))
        require(fits, self.field(name), value, _WORDS[kind])
        return kind(value)
