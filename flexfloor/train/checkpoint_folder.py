"""Folders of checkpoints: names, what makes one whole, how one is put in place, which ones go.

A checkpoint is written into `step_000010.partial` and gets a manifest of its files' sizes last; then the
folder is renamed to `step_000010`. An older one of the same step is kept as `step_000010.old` until then.

Invariants:
- A folder without manifest, or with a file missing or of another size, is never taken for a checkpoint.
- At every moment of a save, the newest whole checkpoint from before it can still be found.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
from pathlib import Path

from flexfloor.errors import CheckpointError

logger = logging.getLogger(__name__)

MANIFEST = "manifest.json"
FORMAT = 1
_NAME = re.compile(r"step_(\d{6,})(\.old)?")


def partial_folder(folder: Path, step: int) -> Path:
    """Where the checkpoint of `step` is written."""
    return folder / f"step_{step:06d}.partial"


def start(folder: Path, step: int) -> None:
    """Make an empty partial folder for `step`, in place of what a broken save may have left."""
    partial = partial_folder(folder, step)
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)


def finish(folder: Path, step: int, world_size: int) -> Path:
    """Seal the partial folder of `step` and put it in its place; returns that place."""
    partial, final = partial_folder(folder, step), folder / f"step_{step:06d}"
    old = final.with_name(f"{final.name}.old")
    manifest = {"format": FORMAT, "step": step, "world_size": world_size, "files": _sizes(partial)}
    _write_durably(partial / MANIFEST, json.dumps(manifest, indent=1))
    if final.exists():
        shutil.rmtree(old, ignore_errors=True)
        final.rename(old)
    partial.rename(final)
    _sync_folder(folder)
    shutil.rmtree(old, ignore_errors=True)
    return final


def complaint(path: Path) -> str | None:
    """What keeps the folder `path` from being a whole checkpoint; None when it is one."""
    try:
        manifest = json.loads((path / MANIFEST).read_text())
    except FileNotFoundError:
        return f"{path / MANIFEST} is missing: the save was not finished"
    except (OSError, json.JSONDecodeError) as error:
        return f"{path / MANIFEST} cannot be read: {error}"
    if manifest["format"] != FORMAT:
        return f"format {manifest['format']} is not the supported {FORMAT}"
    sizes = _sizes(path)
    for name, size in manifest["files"].items():
        if sizes.get(name) != size:
            found = "is missing" if name not in sizes else f"has {sizes[name]} bytes"
            return f"{path / name} {found}; {size} bytes were written"
    return None


def require_whole(path: Path) -> dict:
    """The manifest of the checkpoint at `path`. Raises `CheckpointError` when it is not whole."""
    if (reason := complaint(path)) is not None:
        raise CheckpointError(f"no whole checkpoint at {path}: {reason}")
    return json.loads((path / MANIFEST).read_text())


def latest_checkpoint(folder: Path) -> Path | None:
    """The whole checkpoint of the highest step in `folder`; broken ones are passed over with a warning."""
    for path in _candidates(folder):
        reason = complaint(path)
        if reason is None:
            return path
        logger.warning("passing over %s: %s", path, reason)
    return None


def prune(folder: Path, *, keep: int, newest: int) -> None:
    """Of the checkpoints up to step `newest`, leave the `keep` whole ones of the highest steps."""
    assert keep >= 1, keep
    kept = 0
    for path in _candidates(folder):
        if _step(path) > newest:
            continue
        if kept < keep and complaint(path) is None:
            kept += 1
        else:
            shutil.rmtree(path, ignore_errors=True)


def move_from(folder: Path, step: int, target: Path) -> None:
    """Move the checkpoints of `step` and later to the folder `target`, which is made when there are any."""
    for path in _candidates(folder):
        if _step(path) >= step:
            target.mkdir(exist_ok=True)
            path.rename(target / path.name)


def _candidates(folder: Path) -> list[Path]:
    """Folders with a checkpoint's name, the highest step first and the replaced one of a step last."""
    if not folder.is_dir():
        return []
    named = [path for path in folder.iterdir() if _NAME.fullmatch(path.name) and path.is_dir()]
    return sorted(named, key=lambda path: (-_step(path), path.name))


def _step(path: Path) -> int:
    match = _NAME.fullmatch(path.name)
    assert match, path
    return int(match[1])


def _sizes(path: Path) -> dict[str, int]:
    files = (file for file in sorted(path.rglob("*")) if file.is_file() and file.name != MANIFEST)
    return {str(file.relative_to(path)): file.stat().st_size for file in files}


def _write_durably(path: Path, text: str) -> None:
    with path.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
