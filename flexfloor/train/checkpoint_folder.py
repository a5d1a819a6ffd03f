"""Folders of checkpoints: names, what makes one whole, how one is put in place, which ones go.

A checkpoint is written into `step_000010.partial` and gets a manifest of its files' sizes and checksums
last; then the folder is renamed to `step_000010`. An older one of the same step is kept as
`step_000010.old` until then.

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
from collections.abc import Collection, Iterator
from pathlib import Path

from flexfloor.errors import CheckpointError

logger = logging.getLogger(__name__)

MANIFEST = "manifest.json"
FORMAT = 2
WEIGHTS = "weights"
"""Folder of the policy's weights within a checkpoint."""
PLAIN = "plain"
"""Files of what is no tensor."""
_FIELDS = {"step", "layout", "files", "crc32"}
_NAME = re.compile(r"step_(\d{6,})(\.old)?")


def checkpoint_name(step: int) -> str:
    """Name of the folder of the finished checkpoint of `step`."""
    return f"step_{step:06d}"


def partial_folder(folder: Path, step: int) -> Path:
    """Where the checkpoint of `step` is written."""
    return folder / f"{checkpoint_name(step)}.partial"


def rank_part(path: Path, rank: int) -> Path:
    """Where the checkpoint at `path` has a rank's random states; none but a run has any."""
    return path / f"rank_{rank:05d}"


def start(folder: Path, step: int) -> None:
    """Make an empty partial folder for `step`, in place of what broken saves may have left."""
    for left in folder.glob("step_*.partial"):
        shutil.rmtree(left, ignore_errors=True)
    partial_folder(folder, step).mkdir(parents=True)


def finish(folder: Path, step: int, *, layout: dict[str, int], sums: dict[str, int]) -> Path:
    """Seal the partial folder of `step` and put it in its place; returns that place.

    Args:
        layout: of the ranks that wrote it.
        sums: checksum of each file by its name in the folder.
    """
    partial, final = partial_folder(folder, step), folder / checkpoint_name(step)
    old = final.with_name(f"{final.name}.old")
    seal(partial, step, layout=layout, sums=sums)
    if final.exists():
        shutil.rmtree(old, ignore_errors=True)
        final.rename(old)
    partial.rename(final)
    _sync_folder(folder)
    shutil.rmtree(old, ignore_errors=True)
    return final


def seal(path: Path, step: int, *, layout: dict[str, int], sums: dict[str, int]) -> None:
    """Write the manifest of the folder `path`, which makes it a checkpoint; arguments as `finish`'s."""
    sizes = file_sizes(path)
    assert sizes.keys() == sums.keys(), sizes.keys() ^ sums.keys()
    manifest = {"format": FORMAT, "step": step, "layout": layout, "files": sizes, "crc32": sums}
    for parent in {(path / name).parent for name in sizes}:
        _sync_folder(parent)
    _write_durably(path / MANIFEST, json.dumps(manifest, indent=1))


def is_sealed(path: Path) -> bool:
    """Whether `path` is a checkpoint's folder, whole or with files that are no more as they were written."""
    return (path / MANIFEST).exists()


def has_run_state(path: Path) -> bool:
    """Whether the whole checkpoint at `path` was saved by a run, and not made of a model's weights alone."""
    return rank_part(path, 0).with_suffix(".json").exists()


def complaint(path: Path) -> str | None:
    """What keeps the folder `path` from being a whole checkpoint; None when it is one."""
    try:
        manifest = json.loads((path / MANIFEST).read_text())
    except FileNotFoundError:
        return f"{path / MANIFEST} is missing: the save was not finished"
    except (OSError, ValueError) as error:  # no text, or no JSON
        return f"{path / MANIFEST} cannot be read: {error}"
    if manifest.get("format") != FORMAT:
        return f"format {manifest.get('format')} is not the supported {FORMAT}"
    if missing := _FIELDS - manifest.keys():
        return f"{path / MANIFEST} lacks {', '.join(sorted(missing))}"
    sizes = file_sizes(path)
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


def whole_checkpoints(folder: Path) -> Iterator[Path]:
    """The whole checkpoints in `folder`, the highest step first; it warns of broken ones and skips them."""
    for path in _candidates(folder):
        reason = complaint(path)
        if reason is None:
            yield path
        else:
            logger.warning("passing over %s: %s", path, reason)


def latest_checkpoint(folder: Path) -> Path | None:
    """The first of `whole_checkpoints`."""
    return next(whole_checkpoints(folder), None)


def has_any(folder: Path) -> bool:
    """Whether there is a checkpoint in `folder`, whole or broken."""
    return bool(_candidates(folder))


def prune(folder: Path, *, keep: int, newest: int, spare: Collection[int] = ()) -> None:
    """Of the checkpoints up to step `newest`, leave the `keep` whole ones of the highest steps.

    Args:
        spare: steps whose checkpoints stay whatever has been saved since.
    """
    assert keep >= 1, keep
    kept = 0
    for path in _candidates(folder):
        if _step(path) > newest:
            continue
        if kept < keep and complaint(path) is None:
            kept += 1
        elif _step(path) not in spare:
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


def file_sizes(path: Path) -> dict[str, int]:
    """Bytes of each file below `path` by name, but for the manifest."""
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
