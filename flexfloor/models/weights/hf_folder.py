"""A folder of a model that is written: beside its place, sealed by its index, and then renamed.

Invariants:
- What stands at the place is whole; an export that was interrupted leaves a folder `<name>.partial` at most,
  which no reader of models takes for one, and which the next export removes.
- Nothing that stands there already is overwritten.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from flexfloor.errors import ConfigError
from flexfloor.models.weights.assembly import Shard
from flexfloor.models.weights.stored import INDEX, ONE_FILE

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
)
GENERATION_FILE = "generation_config.json"


def require_free(field: str, folder: Path) -> None:
    """Raise `ConfigError` naming `field` unless `folder` can be made or is empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{field} = {folder}: must be a folder that is empty or does not exist")


def begin(folder: Path) -> Path:
    """An empty folder beside `folder`, to be written into."""
    partial = partial_of(folder)
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    return partial


def partial_of(folder: Path) -> Path:
    """Where an export to `folder` is written."""
    return folder.with_name(f"{folder.name}.partial")


def finish(folder: Path, shards: Sequence[Shard]) -> None:
    """Write the index and put everything in its place."""
    if [each.file for each in shards] != [ONE_FILE]:
        _write_index(partial_of(folder) / INDEX, shards)
    put_in_place(folder)


def put_in_place(folder: Path) -> None:
    """What was written becomes `folder`."""
    partial = partial_of(folder)
    _sync(partial)
    if folder.exists():
        folder.rmdir()  # empty, or this raises
    partial.rename(folder)
    _sync(folder.parent)


def copy_files(source: Path, folder: Path, names: Sequence[str]) -> list[str]:
    """Copy those of `names` that `source` has; returns them."""
    found = [name for name in names if (source / name).is_file()]
    for name in found:
        shutil.copyfile(source / name, folder / name)
    return found


def _write_index(path: Path, shards: Sequence[Shard]) -> None:
    content = {
        "metadata": {"total_size": sum(each.num_bytes for each in shards)},
        "weight_map": {tensor.name: each.file for each in shards for tensor in each.tensors},
    }
    path.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")


def _sync(folder: Path) -> None:
    """Bring the folder's entries, and small files in it, to the disk."""
    for path in (*folder.glob("*.json"), folder):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
