"""A Python file of the user, run once per process."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from flexfloor.errors import ConfigError


def load_user_file(path: str, setting: str) -> ModuleType:
    """The module in the file `path`; the same object when it was loaded before.

    Raises:
        ConfigError: naming `setting`, if the file is missing or raises while it is imported.
    """
    file = Path(path).expanduser().resolve()
    name = f"flexfloor_user_file:{file}"
    if name in sys.modules:
        return sys.modules[name]
    if not file.is_file():
        raise ConfigError(f"{setting}={path}: no such file")
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{setting}={path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # before it runs: dataclasses and pickle look their module up there
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise ConfigError(f"{setting}={path}: {type(error).__name__} while importing it: {error}") from error
    return module
