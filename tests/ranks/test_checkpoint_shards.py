"""The optimizer that a GPU has, sharded over replicas, goes on under another TP size."""

from pathlib import Path

import gradient_ranks as gradients
import numpy as np
import pytest
import torch
from test_checkpoint_layouts import as_on_a_gpu

from flexfloor.launch import run_ranks


def two_steps(folder, ep_size, tp_size, goes_on):
    """Two steps after those of the checkpoint in `folder`, and a checkpoint after the first of them."""
    from flexfloor.train import optimizer
    from flexfloor.train.checkpoint import load_checkpoint, save_checkpoint

    as_on_a_gpu()
    optimizer.is_cpu_host = lambda: False
    ddp, groups = gradients.build(ep_size, dtype="float32", name="deepseek_v3", tp_size=tp_size)
    assert ddp.ddp_config.use_distributed_optimizer
    step = gradients.make_step(ddp, groups, gradients.make_case(budget=25), **gradients.ADAM)
    parts = {"model": [ddp], "optimizer": step.optimizer, "scheduler": step.scheduler}
    told = []
    if goes_on:
        load_checkpoint(Path(folder) / "step_000001", **parts)
    else:
        told.append(step.update(gradients.as_samples(gradients.NINE, "grpo")))
        save_checkpoint(Path(folder), 1, **parts, extra={})
    loaded = gradients.named(ddp, lambda parameter: parameter)
    told.append(step.update(gradients.as_samples(gradients.SHUFFLED, "grpo")))
    return told, loaded, gradients.named(ddp, lambda parameter: parameter)


def merged(of_ranks, which):
    return {name: value for rank in of_ranks for name, value in rank[which].items()}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after"), [((4, 4, 2), (2, 2, 1)), ((2, 2, 1), (4, 2, 2)), ((4, 4, 4), (4, 4, 2))]
)
def test_a_sharded_optimizer_changes_replicas(tmp_path, before, after):
    saved, loaded = (
        run_ranks(two_steps, ranks, str(tmp_path), ep_size, tp_size, goes_on, threads_per_rank=1)
        for goes_on, (ranks, ep_size, tp_size) in enumerate((before, after))
    )
    for (*_, expected), *_ in saved:
        for [found], *_ in loaded:
            assert found == pytest.approx(expected, rel=2e-4)
    start = merged(saved, 1)
    for name, value in merged(loaded, 1).items():
        np.testing.assert_array_equal(value, start[name], err_msg=name)
    end = merged(saved, 2)
    for name, value in merged(loaded, 2).items():
        np.testing.assert_allclose(value, end[name], rtol=0, atol=2e-4, err_msg=name)
    assert torch.tensor([np.abs(end[name] - start[name]).max() for name in end]).max() > 5e-3
