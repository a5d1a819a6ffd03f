"""A run goes on from its checkpoint as if it had never stopped, and a broken checkpoint is never taken."""

from __future__ import annotations

import os
import random
import re
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_moe
import torch
import torch.distributed as dist

from flexfloor import parallel
from flexfloor.errors import CheckpointError, RankError
from flexfloor.launch import run_ranks

EXTRA = {
    "step": 2,
    "sampler": {"epoch": 1, "order": np.array([3, 1, 2]), "position": 1},
    "run_id": "a1b2",
    "shares": [0.1, None, True],
}


def save(training: tiny_moe.TinyTraining, folder: str, step: int, **fields: Any) -> Path:
    """Save the whole of `training`."""
    from flexfloor.train.checkpoint import save_checkpoint

    return save_checkpoint(
        Path(folder),
        step,
        model=[training.ddp],
        optimizer=training.optimizer,
        scheduler=training.scheduler,
        **{"extra": EXTRA, **fields},
    )


def load(training: tiny_moe.TinyTraining, path: Path | str) -> dict[str, Any]:
    """Load everything at `path` into `training`."""
    from flexfloor.train.checkpoint import load_checkpoint

    return load_checkpoint(
        Path(path), model=[training.ddp], optimizer=training.optimizer, scheduler=training.scheduler
    )


def draws() -> list[Any]:
    """The next number of each generator that a rank may draw from."""
    from megatron.core.tensor_parallel.random import get_cuda_rng_tracker

    with get_cuda_rng_tracker().fork():
        named = torch.rand(1).item()
    return [random.random(), np.random.rand(), torch.rand(1).item(), named]


def state_of_adam(training: tiny_moe.TinyTraining) -> list[torch.Tensor]:
    """All of Adam's moments and step counts on this rank, in the order of the parameters."""
    return [
        torch.as_tensor(value).clone()
        for optimizer in training.optimizer.chained_optimizers
        for group in optimizer.optimizer.param_groups
        for parameter in group["params"]
        for _, value in sorted(optimizer.optimizer.state[parameter].items())
    ]


def go_on_after_loading(folder: str, dtype: str) -> dict[str, Any]:
    """Two steps, save, two more; and in a model with other weights: load, the same two more."""
    unbroken = tiny_moe.build(ep_size=2, dtype=getattr(torch, dtype))
    for number in range(2):
        tiny_moe.step(unbroken, number)
    path = save(unbroken, folder, 2)
    saved, moments, rate = tiny_moe.weights(unbroken), state_of_adam(unbroken), unbroken.scheduler.num_steps
    expected_draws = draws()
    expected = [tiny_moe.step(unbroken, number) for number in (2, 3)]
    parallel.destroy()

    resumed = tiny_moe.build(ep_size=2, dtype=getattr(torch, dtype), seed=99)
    fresh = tiny_moe.weights(resumed)
    extra = load(resumed, path)
    loaded = tiny_moe.weights(resumed)
    equal = {
        "fresh": any(torch.equal(fresh[name], saved[name]) for name in saved if "norm" not in name),
        "weights": all(torch.equal(loaded[name], saved[name]) for name in saved),
        "moments": all(torch.equal(a, b) for a, b in zip(state_of_adam(resumed), moments, strict=True)),
        "schedule": resumed.scheduler.num_steps == rate == 2,
        "draws": draws() == expected_draws,
    }
    equal["losses"] = [tiny_moe.step(resumed, number) for number in (2, 3)] == expected
    final = tiny_moe.weights(unbroken)
    equal["final"] = all(torch.equal(value, final[name]) for name, value in tiny_moe.weights(resumed).items())
    return {"path": path, "extra": extra, "equal": equal}


def save_before_the_first_step(folder: str) -> tuple[list[Any], list[Any]]:
    """Four steps after a save of an untrained model, and four after loading it into a trained one."""
    training = tiny_moe.build(ep_size=2)
    path = save(training, folder, 0)
    unbroken = [tiny_moe.step(training, number) for number in range(4)]
    parallel.destroy()
    training = tiny_moe.build(ep_size=2, seed=99)
    tiny_moe.step(training, 7)
    load(training, path)
    return unbroken, [tiny_moe.step(training, number) for number in range(4)]


def train_and_save(
    folder: str, steps: list[int], ep_size: int = 2, keep: int | None = None
) -> dict[str, Any]:
    """A checkpoint after each of `steps`; returns the last weights by global name."""
    training = tiny_moe.build(ep_size=ep_size)
    for step in steps:
        tiny_moe.step(training, step)
        save(training, folder, step, extra={"step": step}, keep=keep)
    return by_global_name(training, ep_size)


def load_at(path: str, ep_size: int, weights_only: bool = False) -> dict[str, Any]:
    """The weights at `path` by global name, loaded with experts spread over `ep_size` ranks."""
    from flexfloor.train.checkpoint import load_weights

    training = tiny_moe.build(ep_size=ep_size, seed=99)
    if weights_only:
        load_weights(Path(path), model=[training.ddp])
    else:
        load(training, path)
    return by_global_name(training, ep_size)


def by_global_name(training: tiny_moe.TinyTraining, ep_size: int) -> dict[str, np.ndarray]:
    """This rank's weights with experts numbered over all ranks."""
    num_local = 4 // ep_size
    named = {}
    for name, value in tiny_moe.weights(training).items():
        head, local, tail = name.partition(".local_experts.")
        number, _, rest = tail.partition(".")
        expert = int(number) + num_local * (dist.get_rank() % ep_size) if local else 0
        named[f"{head}{local}{expert}.{rest}" if local else name] = value.numpy()
    return named


def die_while_saving(folder: str, moment: str) -> None:
    """Save step 1, then re-save it or save step 2 and kill rank 0 at `moment`."""
    from flexfloor.train import checkpoint_folder

    training = tiny_moe.build(ep_size=2)
    save(training, folder, 1, extra={"save": 1})
    if dist.get_rank() == 0:
        _arm(checkpoint_folder, moment)
    save(training, folder, 1 if moment == "between renames" else 2, extra={"save": 2})


def _arm(checkpoint_folder: Any, moment: str) -> None:
    def die(*_: Any, **__: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    rename = Path.rename

    def die_at_the_last(path: Path, target: Path) -> Path:
        # Upstream renames files of its own; the last rename is the one to the checkpoint's name.
        return die() if re.fullmatch(r"step_\d+", Path(target).name) else rename(path, target)

    if moment == "before the manifest":
        checkpoint_folder._write_durably = die
    else:
        Path.rename = die_at_the_last


def load_other_model(path: str, change: str) -> None:
    """Load into a model or schedule that is not the one saved."""
    training = tiny_moe.build(ep_size=2, hidden_size=16 if change == "shape" else 32)
    if change == "schedule":
        training.scheduler.max_lr = 0.5
        training.scheduler.use_checkpoint_opt_param_scheduler = False
    load(training, path)


def save_with(folder: str, extra: dict[str, Any]) -> None:
    """Save with `extra`, on rank 0 alone; the other ranks have nothing to add."""
    training = tiny_moe.build(ep_size=2)
    save(training, folder, 1, extra=extra if dist.get_rank() == 0 else {})


def latest(folder: Path) -> Path | None:
    """`latest_checkpoint`, which needs no ranks."""
    from flexfloor.train.checkpoint_folder import latest_checkpoint

    return latest_checkpoint(folder)


def run_two(fn: Any, *args: Any) -> list[Any]:
    """`fn` on 2 ranks of one thread."""
    return run_ranks(
        fn, 2, *args, threads_per_rank=1, collective_timeout_seconds=30, total_timeout_seconds=120
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_resumed_run_equals_the_unbroken_one(tmp_path: Path, dtype: str) -> None:
    for result in run_two(go_on_after_loading, str(tmp_path), dtype):
        wrong = [name for name, equal in result["equal"].items() if equal != (name != "fresh")]
        assert wrong == []
        assert result["path"] == tmp_path / "step_000002"
        order = result["extra"]["sampler"].pop("order")
        assert order.dtype == np.int64 and order.tolist() == [3, 1, 2]
        assert result["extra"] == {
            "step": 2,
            "sampler": {"epoch": 1, "position": 1},
            "run_id": "a1b2",
            "shares": [0.1, None, True],
        }
    assert latest(tmp_path) == tmp_path / "step_000002"


@pytest.mark.parametrize(("ep_size", "weights_only"), [(4, False), (4, True), (1, True)])
def test_loads_with_another_ep_size(tmp_path: Path, ep_size: int, weights_only: bool) -> None:
    first, second = run_two(train_and_save, str(tmp_path), [1])
    saved = {**first, **second}
    path = str(tmp_path / "step_000001")
    of_ranks = run_ranks(load_at, ep_size, path, ep_size, weights_only, threads_per_rank=1)
    loaded = {name: value for of_rank in of_ranks for name, value in of_rank.items()}
    assert loaded.keys() == saved.keys()
    assert all(np.array_equal(loaded[name], value) for name, value in saved.items())


def test_goes_on_from_before_the_first_step(tmp_path: Path) -> None:
    for unbroken, resumed in run_two(save_before_the_first_step, str(tmp_path)):
        assert resumed == unbroken


@pytest.mark.parametrize("moment", ["before the manifest", "before the rename", "between renames"])
def test_killed_while_saving_leaves_the_one_before(tmp_path: Path, moment: str) -> None:
    with pytest.raises(RankError, match="rank 0 of 2 was killed by SIGKILL"):
        run_two(die_while_saving, str(tmp_path), moment)
    found = latest(tmp_path)
    assert found is not None and '"save": 1' in (found / "plain.json").read_text()
    run_two(load_at, str(found), 2)
    run_two(train_and_save, str(tmp_path), [1, 2])
    assert {path.name for path in tmp_path.iterdir()} == {"step_000001", "step_000002"}


def test_same_step_again_replaces_it(tmp_path: Path) -> None:
    run_two(train_and_save, str(tmp_path), [1, 1])
    assert [path.name for path in tmp_path.iterdir()] == ["step_000001"]
    assert latest(tmp_path) == tmp_path / "step_000001"


def test_keeps_the_last_ones(tmp_path: Path) -> None:
    run_two(train_and_save, str(tmp_path), [1, 2, 3], 2, 2)
    assert {path.name for path in tmp_path.iterdir()} == {"step_000002", "step_000003"}


def test_unwritable_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match=r"cannot write to .*/file/run \(rank 0\): NotADirectoryError"):
        run_two(train_and_save, str(tmp_path / "file" / "run"), [1])


def test_extra_that_cannot_be_kept_stops_all_ranks(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"extra\.set is a set"):
        run_two(save_with, str(tmp_path), {"set": {1}})
    assert latest(tmp_path) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [("schedule", "schedule is another one.*learning rate"), ("shape", "shape mismatch")],
)
def test_checkpoint_of_another_model_is_refused(tmp_path: Path, change: str, message: str) -> None:
    run_two(train_and_save, str(tmp_path), [1])
    with pytest.raises(CheckpointError, match=message):
        run_two(load_other_model, str(tmp_path / "step_000001"), change)


def test_broken_checkpoint_is_not_loaded(tmp_path: Path) -> None:
    run_two(train_and_save, str(tmp_path), [1, 2])
    [some_file, *_] = sorted((tmp_path / "step_000002" / "weights").glob("*.distcp"))
    os.truncate(some_file, some_file.stat().st_size - 1)
    assert latest(tmp_path) == tmp_path / "step_000001"
    with pytest.raises(CheckpointError, match=f"{some_file.name} has .* bytes"):
        run_two(load_at, str(tmp_path / "step_000002"), 2)
