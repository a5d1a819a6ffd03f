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
    """Weights, master weights and Adam's moments and steps of this rank, experts numbered over all ranks."""
    named = {parameter: name for name, parameter in training.ddp.module.named_parameters()}
    found = {f"weight.{name}": parameter for parameter, name in named.items()}
    for part in training.optimizer.chained_optimizers:
        masters = getattr(part, "fp32_from_float16_groups", None)
        originals = part.float16_groups if masters else [g["params"] for g in part.optimizer.param_groups]
        held = masters or originals
        for original, mine in zip(sum(originals, []), sum(held, []), strict=True):
            state = {**part.optimizer.state[mine], "master": mine}
            found |= {f"{key}.{named[original]}": value for key, value in state.items()}
    return {global_name(name, ep_size): to_numpy(value) for name, value in found.items()}


def to_numpy(value: Any) -> np.ndarray:
    """A copy; bfloat16, which NumPy lacks, as float32."""
    tensor = torch.as_tensor(value).detach()
    return (tensor.float() if tensor.dtype is torch.bfloat16 else tensor).numpy().copy()


def global_name(name: str, ep_size: int) -> str:
    """`name` with its expert numbered over all ranks."""
    head, local, tail = name.partition(".local_experts.")
    number, _, rest = tail.partition(".")
    first = NUM_EXPERTS // ep_size * (dist.get_rank() % ep_size)
    return f"{head}{local}{int(number) + first}.{rest}" if local else name


def one_step(folder: str, number: int, ep_size: int, dtype: str) -> dict[str, Any]:
    """Go on from the checkpoint before `number`, if there is one, train a step and save it."""
    from flexfloor.train.checkpoint import latest_checkpoint, load_checkpoint, save_checkpoint

    training = tiny_moe.build(ep_size=ep_size, dtype=getattr(torch, dtype), seed=number)
    parts = {"model": [training.ddp], "optimizer": training.optimizer, "scheduler": training.scheduler}
    loaded = None
    if (path := latest_checkpoint(Path(folder))) is not None:
        load_checkpoint(path, **parts)
        loaded = state_by_name(training, ep_size)
    told = train(training, number)
    save_checkpoint(Path(folder), number, **parts, extra={})
    return {"loaded": loaded, "told": told, "trained": state_by_name(training, ep_size)}


def joined(of_ranks: list[dict[str, Any]], name: str) -> dict[str, np.ndarray]:
    """What all ranks hold, by name."""
    return {key: value for of_rank in of_ranks for key, value in of_rank[name].items()}


def step_under(layout: tuple[int, int], folder: Path, number: int, dtype: str) -> list[dict[str, Any]]:
    """`one_step` of all ranks of `layout`."""
    ranks, ep_size = layout
    return run_ranks(one_step, ranks, str(folder), number, ep_size, dtype, threads_per_rank=1)


def unbroken(dtype: str) -> list[tuple[float, float]]:
    """Loss and gradient norm of all steps on one rank that is never stopped."""
    training = tiny_moe.build(ep_size=1, dtype=getattr(torch, dtype), seed=0)
    return [train(training, number) for number in range(len(LAYOUTS))]


def test_a_run_that_changes_layout_at_every_step_trains_as_one_that_never_does(tmp_path: Path) -> None:
    [expected] = run_ranks(unbroken, 1, "float64", threads_per_rank=1)
    before = None
    for number, layout in enumerate(LAYOUTS):
        of_ranks = step_under(layout, tmp_path, number, "float64")
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


def test_master_weights_change_layout(tmp_path: Path) -> None:
    before = joined(step_under((2, 2), tmp_path, 0, "bfloat16"), "trained")
    of_ranks = step_under((1, 1), tmp_path, 1, "bfloat16")
    loaded = joined(of_ranks, "loaded")
    assert loaded.keys() == before.keys() and all(np.array_equal(loaded[n], before[n]) for n in before)
    assert any(name.startswith("master.") for name in loaded)
    back = joined(step_under((2, 2), tmp_path, 2, "bfloat16"), "loaded")
    after = joined(of_ranks, "trained")
    assert back.keys() == after.keys() and all(np.array_equal(back[n], after[n]) for n in after)
