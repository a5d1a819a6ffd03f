"""A run goes on under another number of ranks and another EP size as if nothing had changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_moe
import torch
import torch.distributed as dist

from flexfloor.launch import run_ranks

NUM_ROWS = 4
NUM_EXPERTS = 4
# (ranks, EP size); the experts' states move between upstream's one optimizer (EP 1) and its own for them
LAYOUTS = [(1, 1), (4, 2), (2, 1), (2, 2), (4, 4), (1, 1)]


def batch_of_rank(number: int) -> torch.Tensor:
    """This rank's rows of the batch that all ranks together train on in step `number`."""
    generator = torch.Generator().manual_seed(number)
    rows = torch.randint(0, tiny_moe.VOCAB_SIZE, (NUM_ROWS, tiny_moe.NUM_TOKENS), generator=generator)
    return rows[dist.get_rank() :: dist.get_world_size()]


def train(training: tiny_moe.TinyTraining, number: int) -> tuple[float, float]:
    """Mean loss over all rows of step `number`, and the gradient norm."""
    loss, grad_norm = tiny_moe.step(training, number, batch_of_rank(number))
    losses: list[float] = [0.0] * dist.get_world_size()
    dist.all_gather_object(losses, loss)
    return float(np.mean(losses)), float(grad_norm)


def state_by_name(training: tiny_moe.TinyTraining, ep_size: int) -> dict[str, np.ndarray]:
    """Weights, and Adam's moments and steps, of this rank, experts numbered over all ranks."""
    named = {parameter: name for name, parameter in training.ddp.module.named_parameters()}
    found = {f"weight.{name}": parameter for parameter, name in named.items()}
    for part in training.optimizer.chained_optimizers:
        for parameter, state in part.optimizer.state.items():
            found |= {f"{key}.{named[parameter]}": value for key, value in state.items()}
    return {global_name(name, ep_size): value.detach().numpy().copy() for name, value in found.items()}


def global_name(name: str, ep_size: int) -> str:
    """`name` with its expert numbered over all ranks."""
    head, local, tail = name.partition(".local_experts.")
    number, _, rest = tail.partition(".")
    first = NUM_EXPERTS // ep_size * (dist.get_rank() % ep_size)
    return f"{head}{local}{int(number) + first}.{rest}" if local else name


def one_step(folder: str, number: int, ep_size: int) -> dict[str, Any]:
    """Go on from the checkpoint before `number`, if there is one, train a step and save it."""
    from flexfloor.train.checkpoint import latest_checkpoint, load_checkpoint, save_checkpoint

    training = tiny_moe.build(ep_size=ep_size, dtype=torch.float64, seed=number)
    parts = {"model": [training.ddp], "optimizer": training.optimizer, "scheduler": training.scheduler}
    loaded, drawn = None, torch.get_rng_state()
    if (path := latest_checkpoint(Path(folder))) is not None:
        load_checkpoint(path, **parts)
        loaded = state_by_name(training, ep_size)
        assert torch.equal(torch.get_rng_state(), drawn), "the random states of ranks of another layout"
    torch.rand(1)
    told = train(training, number)
    save_checkpoint(Path(folder), number, **parts, extra={})
    return {"loaded": loaded, "told": told, "trained": state_by_name(training, ep_size)}


def joined(of_ranks: list[dict[str, Any]], name: str) -> dict[str, np.ndarray]:
    """What all ranks hold, by name."""
    return {key: value for of_rank in of_ranks for key, value in of_rank[name].items()}


def step_under(layout: tuple[int, int], folder: Path, number: int) -> list[dict[str, Any]]:
    """`one_step` of all ranks of `layout`."""
    ranks, ep_size = layout
    return run_ranks(one_step, ranks, str(folder), number, ep_size, threads_per_rank=1)


def unbroken() -> list[tuple[float, float]]:
    """Loss and gradient norm of all steps on one rank that is never stopped."""
    training = tiny_moe.build(ep_size=1, dtype=torch.float64, seed=0)
    return [train(training, number) for number in range(len(LAYOUTS))]


def test_a_run_that_changes_layout_at_every_step_trains_as_one_that_never_does(tmp_path: Path) -> None:
    [expected] = run_ranks(unbroken, 1, threads_per_rank=1)
    before = None
    for number, layout in enumerate(LAYOUTS):
        of_ranks = step_under(layout, tmp_path, number)
        for of_rank in of_ranks:
            # upstream takes the loss in float32, also of a float64 model
            assert of_rank["told"] == pytest.approx(expected[number], rel=1e-6), (number, layout)
        if before is not None:
            loaded = joined(of_ranks, "loaded")
            assert loaded.keys() == before.keys()
            wrong = [name for name, value in loaded.items() if not np.array_equal(value, before[name])]
            assert wrong == [], layout
        before = joined(of_ranks, "trained")
    assert any(name.startswith("exp_avg_sq.") and ".local_experts.3." in name for name in before)


def as_on_a_gpu() -> None:
    """Answer for CUDA where upstream's other two optimizers ask a tensor for it."""
    name_of = torch.Tensor.type
    torch.Tensor.type = lambda tensor, *to: (
        name_of(tensor, *to)
        if to
        else f"torch.cuda.{tensor.dtype}".replace("torch.bfloat16", "BFloat16Tensor").replace(
            "torch.float32", "FloatTensor"
        )
    )
    torch.Tensor.cuda = lambda tensor: tensor


def change_optimizer_of_a_gpu(folder: str, before: int, after: int, shard: bool) -> list[Any]:
    """Two steps after a save at EP `before`, and the same two after loading at EP `after`."""
    from flexfloor import parallel
    from flexfloor.train.checkpoint import load_checkpoint, save_checkpoint

    as_on_a_gpu()
    told = []
    for ep_size in (before, after):
        training = tiny_moe.build(ep_size=ep_size, dtype=torch.bfloat16, shard_optimizer=shard, seed=ep_size)
        parts = {"model": [training.ddp], "optimizer": training.optimizer, "scheduler": training.scheduler}
        if not told:
            train(training, 0)
            save_checkpoint(Path(folder), 0, **parts, extra={})
        else:
            load_checkpoint(Path(folder) / "step_000000", **parts)
        told.append([train(training, number) for number in (1, 2)])
        parallel.destroy()
    return told


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2)])
@pytest.mark.parametrize("shard", [False, True], ids=["master-weights", "sharded"])
def test_optimizers_of_a_gpu_change_layout(tmp_path: Path, before: int, after: int, shard: bool) -> None:
    args = (str(tmp_path), before, after, shard)
    for expected, found in run_ranks(change_optimizer_of_a_gpu, 2, *args, threads_per_rank=1):
        assert np.array(found) == pytest.approx(np.array(expected), rel=2e-4)
