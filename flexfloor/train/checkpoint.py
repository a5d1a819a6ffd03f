"""Save and load a training run with Megatron's `dist_checkpointing`; all ranks call both.

A checkpoint holds model and optimizer (sharded), schedule, the reference policy of a run that has one, what
the caller adds (`extra`, taken from rank 0), and every rank's random states. The ranks share the folder's
file system. A run goes on with any number of ranks and at any EP and TP size.

Invariants:
- What is loaded equals what was saved, and nothing of it is silently left at its initial value; only the
  random states of ranks under another layout have no meaning there and stay as the start made them.
- A half-written checkpoint is never taken for a whole one (see `checkpoint_folder`).
- A failure on one rank ends all of them with its message (see `rank_failure`).
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import dist_checkpointing
from megatron.core.dist_checkpointing.validation import StrictHandling
from megatron.core.optimizer import MegatronOptimizer
from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler
from megatron.core.utils import get_model_config

from flexfloor.errors import CheckpointError
from flexfloor.train import checkpoint_folder, checksums, random_state
from flexfloor.train.checkpoint_folder import WEIGHTS, latest_checkpoint
from flexfloor.train.garbage import uncollected
from flexfloor.train.merging import spare_merges
from flexfloor.train.optimizer import restore_schedule
from flexfloor.train.optimizer_state import OptimizerState, forget, has_stepped
from flexfloor.train.plain_data import read_plain, write_plain
from flexfloor.train.reference import ReferenceWeights
from flexfloor.train.shard_writer import write_shards
from flexfloor.train.shared_failure import at_once, on_every_rank, on_first_rank

__all__ = [
    "has_reference",
    "latest_checkpoint",
    "load_checkpoint",
    "load_weights",
    "read_extra",
    "require_intact",
    "save_checkpoint",
]

logger = logging.getLogger(__name__)

_PLAIN = checkpoint_folder.PLAIN
_REFERENCE = "reference"


def save_checkpoint(
    folder: Path,
    step: int,
    *,
    model: list[torch.nn.Module],
    optimizer: MegatronOptimizer,
    scheduler: OptimizerParamScheduler,
    extra: dict[str, Any],
    reference: ReferenceWeights | None = None,
    keep: int | None = None,
    spare: Collection[int] = (),
) -> Path:
    """Write the checkpoint of `step` and return its folder, `folder`/step_000010 for step 10.

    Args:
        folder: holds the checkpoints of one run; made when missing.
        model: Megatron modules, wrapped for data parallelism or not.
        extra: plain data (see `plain_data`); rank 0's is written.
        reference: of `model`; None when there is no reference policy.
        keep: how many of the newest checkpoints to leave in `folder`, this one included; all when None.
        spare: steps whose checkpoints are left beside them.

    Raises:
        CheckpointError: when any rank cannot write (see `rank_failure`). The checkpoints before stay whole.
    """
    folder = Path(folder)
    partial = checkpoint_folder.partial_folder(folder, step)
    complaint = f"cannot write {partial}"
    with _removed_if_failed(partial):
        on_first_rank(lambda: checkpoint_folder.start(folder, step), f"cannot write to {folder}")
        plain = {"extra": extra, "has_stepped": has_stepped(optimizer)}
        on_every_rank(lambda: _write_plain_parts(partial, plain), complaint)
        state = _sharded_weights(model) | {"scheduler": scheduler.state_dict()}
        if plain["has_stepped"]:
            state["optimizer"] = _optimizer_state(optimizer, state, is_loading=False).to_save()
        write_shards(state, partial / WEIGHTS, complaint)
        if reference is not None:
            _write_reference(partial / _REFERENCE, model, reference, complaint)
        _finish(folder, step, _layout(model))
    if keep is not None:
        on_first_rank(
            lambda: checkpoint_folder.prune(folder, keep=keep, newest=step, spare=spare),
            f"cannot prune {folder}",
        )
    return folder / checkpoint_folder.checkpoint_name(step)


@uncollected()
def load_checkpoint(
    path: Path,
    *,
    model: list[torch.nn.Module],
    optimizer: MegatronOptimizer,
    scheduler: OptimizerParamScheduler,
) -> dict[str, Any]:
    """Load the checkpoint at `path` into model, optimizer, schedule and generators; returns `extra`.

    Generators are restored under the layout (ranks, EP and TP size) of the save; otherwise they are left as
    they are, since a rank there holds what no rank held here.

    Raises:
        CheckpointError: on every rank, when the checkpoint is not whole or does not fit.
    """
    path = Path(path)
    complaint = f"cannot load {path}"
    manifest = on_every_rank(lambda: checkpoint_folder.require_whole(path), complaint)
    plain = on_every_rank(lambda: read_plain(path / _PLAIN), complaint)
    wanted = _sharded_weights(model)
    if plain["has_stepped"]:
        room = _optimizer_state(optimizer, wanted, is_loading=True)
        wanted["optimizer"] = room.to_load()
    state = _load_sharded(path / WEIGHTS, model, wanted, StrictHandling.RAISE_ALL, complaint)
    if plain["has_stepped"]:
        room.load(state["optimizer"])
    else:
        forget(optimizer)
    on_every_rank(lambda: restore_schedule(scheduler, state["scheduler"]), complaint)
    # Of before there was tensor parallelism a checkpoint says nothing of it.
    is_same_layout = {"tp": 1} | manifest["layout"] == _layout(model)
    on_every_rank(lambda: _restore_random_state(path, is_same_layout), complaint)
    return plain["extra"]


def read_extra(path: Path) -> dict[str, Any]:
    """What the caller added to the checkpoint at `path`, without loading anything.

    Raises:
        CheckpointError: when the checkpoint is not whole.
    """
    checkpoint_folder.require_whole(Path(path))
    return read_plain(Path(path) / _PLAIN)["extra"]


def require_intact(path: Path) -> None:
    """Read all files at `path` and compare them with what was written; the ranks share them out.

    Raises:
        CheckpointError: on every rank, naming the file that is missing, cut or changed.
    """
    complaint = f"cannot use {path}"
    manifest = on_every_rank(lambda: checkpoint_folder.require_whole(Path(path)), complaint)
    on_every_rank(lambda: checksums.require_sums(Path(path), manifest["crc32"]), complaint)


def load_weights(path: Path, *, model: list[torch.nn.Module], of_reference: bool = False) -> None:
    """Load only the policy's weights, or the reference's, from the checkpoint at `path` of any layout.

    Raises:
        CheckpointError: on every rank, when the checkpoint is not whole or does not fit.
    """
    path = Path(path)
    complaint = f"cannot load {path}"
    on_every_rank(lambda: checkpoint_folder.require_whole(path), complaint)
    folder, wanted = path / (_REFERENCE if of_reference else WEIGHTS), _sharded_weights(model)
    _load_sharded(folder, model, wanted, StrictHandling.RAISE_UNEXPECTED, complaint)


def has_reference(path: Path) -> bool:
    """Whether the checkpoint at `path` holds a reference policy."""
    return (Path(path) / _REFERENCE).is_dir()


@contextmanager
def _removed_if_failed(partial: Path) -> Iterator[None]:
    """Give back the space of a save that fails: on a full disk it would keep other programs from theirs."""
    try:
        yield
    except CheckpointError:
        if dist.get_rank() == 0:
            shutil.rmtree(partial, ignore_errors=True)
        raise


def _write_plain_parts(partial: Path, plain: dict[str, Any]) -> None:
    rank = dist.get_rank()
    write_plain(checkpoint_folder.rank_part(partial, rank), random_state.capture())
    if rank == 0:
        write_plain(partial / _PLAIN, plain)
        (partial / WEIGHTS).mkdir()


def _write_reference(
    folder: Path, model: list[torch.nn.Module], reference: ReferenceWeights, complaint: str
) -> None:
    on_first_rank(folder.mkdir, complaint)
    with reference.swapped_in():
        write_shards(_sharded_weights(model), folder, complaint)


def _finish(folder: Path, step: int, layout: dict[str, int]) -> None:
    partial = checkpoint_folder.partial_folder(folder, step)
    names = on_every_rank(lambda: checkpoint_folder.file_sizes(partial), f"cannot read {partial}")
    mine = on_every_rank(lambda: checksums.sums_of_mine(partial, names, sync=True), f"cannot write {partial}")
    sums = checksums.gathered(mine)
    on_first_rank(
        lambda: checkpoint_folder.finish(folder, step, layout=layout, sums=sums), f"cannot finish {partial}"
    )


def _load_sharded(
    folder: Path, model: list[torch.nn.Module], wanted: dict[str, Any], strict: StrictHandling, complaint: str
) -> dict[str, Any]:
    """Load `wanted`, give the model its weights, and return all that was loaded."""
    spare_merges(wanted)
    with at_once(complaint):
        # A Path, because 0.16 calls its methods when a file is missing, as it is in a checkpoint of 0.19.
        state = dist_checkpointing.load(wanted, folder, strict=strict)
    for index, module in enumerate(model):
        _unwrapped(module).load_state_dict(state[f"model_{index}"])
    return state


def _restore_random_state(path: Path, is_same_layout: bool) -> None:
    if is_same_layout:
        random_state.restore(read_plain(checkpoint_folder.rank_part(path, dist.get_rank())))
    else:
        logger.info("saved under another layout: random states are not restored")


def _sharded_weights(model: list[torch.nn.Module]) -> dict[str, Any]:
    return {f"model_{index}": _unwrapped(module).sharded_state_dict() for index, module in enumerate(model)}


def _optimizer_state(
    optimizer: MegatronOptimizer, weights: dict[str, Any], *, is_loading: bool
) -> OptimizerState:
    """State of `optimizer`, which has to have a step behind it unless `is_loading`."""
    chunks = {name: part for name, part in weights.items() if name.startswith("model_")}
    of_model = chunks["model_0"] if len(chunks) == 1 else chunks
    return OptimizerState(optimizer, of_model, is_loading=is_loading)


def _layout(model: list[torch.nn.Module]) -> dict[str, int]:
    """What the share of a rank depends on."""
    config = get_model_config(model[0])
    ep, tp = config.expert_model_parallel_size, config.tensor_model_parallel_size
    return {"ranks": dist.get_world_size(), "ep": ep, "tp": tp}


def _unwrapped(module: torch.nn.Module) -> Any:
    return getattr(module, "module", module)
