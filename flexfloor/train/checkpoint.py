"""Save and load a training run with Megatron's `dist_checkpointing`; all ranks call both.

A checkpoint holds model and optimizer (sharded), schedule, the reference policy of a run that has one, what
the caller adds (`extra`, taken from rank 0), and every rank's random states. The ranks share the folder's
file system. The weights load at any EP size; a run goes on at any EP size above 1, or at 1 if it was saved
at 1, because upstream keeps the experts' optimizer state under other names there.

Invariants:
- What is loaded equals what was saved, and nothing of it is silently left at its initial value.
- A half-written checkpoint is never taken for a whole one (see `checkpoint_folder`).
- A failure on one rank is a `CheckpointError` on all of them.
"""

from __future__ import annotations

import logging
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import dist_checkpointing
from megatron.core.dist_checkpointing.core import CheckpointingException
from megatron.core.dist_checkpointing.validation import StrictHandling
from megatron.core.optimizer import MegatronOptimizer
from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler
from torch.distributed.checkpoint.api import CheckpointException

from flexfloor.errors import CheckpointError
from flexfloor.train import checkpoint_folder, random_state
from flexfloor.train.checkpoint_folder import latest_checkpoint
from flexfloor.train.plain_data import read_plain, write_plain
from flexfloor.train.reference import ReferenceWeights

__all__ = [
    "has_reference",
    "latest_checkpoint",
    "load_checkpoint",
    "load_weights",
    "read_extra",
    "save_checkpoint",
]

logger = logging.getLogger(__name__)

_WEIGHTS = "weights"
_PLAIN = "plain"
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
) -> Path:
    """Write the checkpoint of `step` and return its folder, `folder`/step_000010 for step 10.

    Args:
        folder: holds the checkpoints of one run; made when missing.
        model: Megatron modules, wrapped for data parallelism or not.
        extra: plain data (see `plain_data`); rank 0's is written.
        reference: of `model`; None when there is no reference policy.
        keep: how many checkpoints to leave in `folder`, this one included; all when None.

    Raises:
        CheckpointError: on every rank, when any of them cannot write.
    """
    folder = Path(folder)
    partial = checkpoint_folder.partial_folder(folder, step)
    _on_first_rank(lambda: checkpoint_folder.start(folder, step), f"cannot write to {folder}")
    complaint = f"cannot write {partial}"
    has_stepped = any(part.state for part in _torch_optimizers(optimizer))
    _on_every_rank(lambda: _write_plain_parts(partial, extra, has_stepped), complaint)
    stateful = optimizer if has_stepped else None
    _on_every_rank(lambda: _write_sharded(partial, model, stateful, scheduler), complaint)
    if reference is not None:
        _write_reference(partial / _REFERENCE, model, reference, complaint)
    world_size = dist.get_world_size()
    _on_first_rank(lambda: checkpoint_folder.finish(folder, step, world_size), f"cannot finish {partial}")
    if keep is not None:
        _on_first_rank(
            lambda: checkpoint_folder.prune(folder, keep=keep, newest=step), f"cannot prune {folder}"
        )
    return folder / f"step_{step:06d}"


def load_checkpoint(
    path: Path,
    *,
    model: list[torch.nn.Module],
    optimizer: MegatronOptimizer,
    scheduler: OptimizerParamScheduler,
) -> dict[str, Any]:
    """Load the checkpoint at `path` into model, optimizer, schedule and generators; returns `extra`.

    Generators are restored when the number of ranks is the one of the save; otherwise they are left alone.

    Raises:
        CheckpointError: on every rank, when the checkpoint is not whole or does not fit.
    """
    path = Path(path)
    complaint = f"cannot load {path}"
    manifest = _on_every_rank(lambda: checkpoint_folder.require_whole(path), complaint)
    plain = _on_every_rank(lambda: read_plain(path / _PLAIN), complaint)
    _on_every_rank(lambda: _read_sharded(path, model, optimizer, scheduler, plain["has_stepped"]), complaint)
    _on_every_rank(lambda: _restore_random_state(path, manifest["world_size"]), complaint)
    return plain["extra"]


def read_extra(path: Path) -> dict[str, Any]:
    """What the caller added to the checkpoint at `path`, without loading anything.

    Raises:
        CheckpointError: when the checkpoint is not whole.
    """
    checkpoint_folder.require_whole(Path(path))
    return read_plain(Path(path) / _PLAIN)["extra"]


def load_weights(path: Path, *, model: list[torch.nn.Module], of_reference: bool = False) -> None:
    """Load only the policy's weights, or the reference's, from the checkpoint at `path` of any EP size.

    Raises:
        CheckpointError: on every rank, when the checkpoint is not whole or does not fit.
    """
    path = Path(path)
    complaint = f"cannot load {path}"
    _on_every_rank(lambda: checkpoint_folder.require_whole(path), complaint)
    folder, wanted = path / (_REFERENCE if of_reference else _WEIGHTS), _sharded_weights(model)
    _on_every_rank(lambda: _load_sharded(folder, model, wanted, StrictHandling.RAISE_UNEXPECTED), complaint)


def has_reference(path: Path) -> bool:
    """Whether the checkpoint at `path` holds a reference policy."""
    return (Path(path) / _REFERENCE).is_dir()


def _write_plain_parts(partial: Path, extra: dict[str, Any], has_stepped: bool) -> None:
    rank = dist.get_rank()
    write_plain(partial / f"rank_{rank:05d}", random_state.capture())
    if rank == 0:
        write_plain(partial / _PLAIN, {"extra": extra, "has_stepped": has_stepped})
        (partial / _WEIGHTS).mkdir()


def _write_sharded(
    partial: Path,
    model: list[torch.nn.Module],
    optimizer: MegatronOptimizer | None,
    scheduler: OptimizerParamScheduler,
) -> None:
    state = _sharded_state(model, optimizer, is_loading=False)
    dist_checkpointing.save({**state, "scheduler": scheduler.state_dict()}, str(partial / _WEIGHTS))


def _write_reference(
    folder: Path, model: list[torch.nn.Module], reference: ReferenceWeights, complaint: str
) -> None:
    _on_first_rank(folder.mkdir, complaint)
    with reference.swapped_in():
        _on_every_rank(lambda: dist_checkpointing.save(_sharded_weights(model), str(folder)), complaint)


def _read_sharded(
    path: Path,
    model: list[torch.nn.Module],
    optimizer: MegatronOptimizer,
    scheduler: OptimizerParamScheduler,
    has_stepped: bool,
) -> None:
    wanted = _sharded_state(model, optimizer if has_stepped else None, is_loading=True)
    state = _load_sharded(path / _WEIGHTS, model, wanted, StrictHandling.RAISE_ALL)
    if has_stepped:
        optimizer.load_state_dict(state["optimizer"])
    else:
        for part in _torch_optimizers(optimizer):
            part.state.clear()
    _load_schedule(scheduler, state["scheduler"])


def _load_sharded(
    folder: Path, model: list[torch.nn.Module], wanted: dict[str, Any], strict: StrictHandling
) -> dict[str, Any]:
    """Load `wanted`, give the model its weights, and return all that was loaded."""
    # A Path, because 0.16 calls its methods when a file is missing, as it is in a checkpoint of 0.19.
    state = dist_checkpointing.load(wanted, folder, strict=strict)
    for index, module in enumerate(model):
        _unwrapped(module).load_state_dict(state[f"model_{index}"])
    return state


def _restore_random_state(path: Path, saved_by: int) -> None:
    if saved_by == dist.get_world_size():
        random_state.restore(read_plain(path / f"rank_{dist.get_rank():05d}"))
    else:
        logger.info("saved by %d ranks: random states are not restored", saved_by)


def _sharded_weights(model: list[torch.nn.Module]) -> dict[str, Any]:
    return {f"model_{index}": _unwrapped(module).sharded_state_dict() for index, module in enumerate(model)}


def _sharded_state(
    model: list[torch.nn.Module], optimizer: MegatronOptimizer | None, *, is_loading: bool
) -> dict[str, Any]:
    """What upstream saves in shards; without an optimizer that has no step behind it, and so no state."""
    weights = _sharded_weights(model)
    if optimizer is None:
        return weights
    of_model = weights["model_0"] if len(model) == 1 else weights
    return {**weights, "optimizer": optimizer.sharded_state_dict(of_model, is_loading=is_loading)}


def _torch_optimizers(optimizer: MegatronOptimizer) -> list[torch.optim.Optimizer]:
    """What `optimizer` is made of; a part without parameters on this rank has none."""
    parts = getattr(optimizer, "chained_optimizers", [optimizer])
    return [part.optimizer for part in parts if part.optimizer is not None]


def _load_schedule(scheduler: OptimizerParamScheduler, state: dict[str, Any]) -> None:
    scheduler.num_steps = 0  # upstream adds the steps it loads to those already made
    try:
        scheduler.load_state_dict(state)
    except AssertionError as error:  # the way upstream says that the two schedules differ
        raise CheckpointError(f"the learning-rate schedule is another one: {error}") from error


def _unwrapped(module: torch.nn.Module) -> Any:
    return getattr(module, "module", module)


def _on_first_rank(action: Callable[[], Any], complaint: str) -> None:
    _on_every_rank(action if dist.get_rank() == 0 else lambda: None, complaint)


def _on_every_rank(action: Callable[[], Any], complaint: str) -> Any:
    """Run `action` on this rank, meet the others, and raise on all if it failed on any."""
    failure: BaseException | None = None
    value = None
    try:
        value = action()
    except (OSError, CheckpointError, CheckpointingException, CheckpointException) as error:
        failure = error
    reasons: list[str | None] = [None] * dist.get_world_size()
    # Upstream lists every key that does not fit: the first lines say enough for one screen.
    text = None if failure is None else textwrap.shorten(f"{type(failure).__name__}: {failure}", 600)
    dist.all_gather_object(reasons, text)
    for rank, reason in enumerate(reasons):
        if reason is not None:
            raise CheckpointError(f"{complaint} (rank {rank}): {reason}") from failure
    return value
