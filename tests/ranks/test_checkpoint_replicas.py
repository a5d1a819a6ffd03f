"""A run goes on, or is exported, under another TP size, weights and optimizer to the bit."""

from pathlib import Path

import gradient_ranks as gradients
import numpy as np
import pytest
import reference_moe as reference

from flexfloor.launch import run_ranks

BATCHES = [gradients.NINE, gradients.SHUFFLED, gradients.NINE[:5], gradients.SHUFFLED[2:], gradients.NINE[3:]]


def trainer(ep_size, tp_size):
    ddp, groups = gradients.build(ep_size, name="deepseek_v3", tp_size=tp_size)
    return ddp, gradients.make_step(ddp, groups, gradients.make_case(budget=25), **gradients.ADAM)


def train(step, number):
    return step.update(gradients.as_samples(BATCHES[number], "grpo"))


def state_by_name(ddp, optimizer):
    """Weights and Adam's moments, whole, by global names."""
    moments = {
        parameter: state
        for part in optimizer.chained_optimizers
        for parameter, state in part.optimizer.state.items()
    }
    found = gradients.named(ddp, lambda parameter: parameter)
    for moment in ("exp_avg", "exp_avg_sq"):
        named = gradients.named(ddp, lambda parameter, key=moment: moments[parameter][key])
        found |= {f"{moment}.{name}": value for name, value in named.items()}
    return found


def one_step(folder, number, ep_size, tp_size):
    """Go on from the checkpoint before `number`, if there is one, train a step and save it."""
    from flexfloor.train.checkpoint import latest_checkpoint, load_checkpoint, save_checkpoint

    ddp, step = trainer(ep_size, tp_size)
    parts = {"model": [ddp], "optimizer": step.optimizer, "scheduler": step.scheduler}
    loaded = None
    if (path := latest_checkpoint(Path(folder))) is not None:
        load_checkpoint(path, **parts)
        loaded = state_by_name(ddp, step.optimizer)
    told = train(step, number)
    save_checkpoint(Path(folder), number, **parts, extra={})
    return {"loaded": loaded, "told": told, "trained": state_by_name(ddp, step.optimizer)}


def unbroken(num_steps):
    _, step = trainer(1, 1)
    return [train(step, number) for number in range(num_steps)]


def joined(of_ranks, name):
    """What all ranks hold, by name; what several hold is the same to the bit."""
    whole = {}
    for part in of_ranks:
        for key, value in part[name].items():
            np.testing.assert_array_equal(whole.setdefault(key, value), value, err_msg=key)
    return whole


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    assert [name for name, value in found.items() if not np.array_equal(value, expected[name])] == []


def read_without_a_model(folder):
    """Each weight of the newest checkpoint, read a few rows at a time as an export does."""
    from flexfloor import parallel
    from flexfloor.convert.stored_model import StoredModel
    from flexfloor.train.checkpoint import latest_checkpoint

    parallel.initialize(ep_size=1, seed=0, timeout_seconds=60)
    path = latest_checkpoint(Path(folder))
    stored = StoredModel(path, gradients.model_config(name="deepseek_v3"), reference.VOCAB)
    found = {}
    for name in stored.learned:
        shape = stored.shapes[name]
        parts = [stored.rows(name, row, min(3, shape[0] - row)) for row in range(0, shape[0], 3)]
        found[name] = np.concatenate([part.numpy() for part in parts]).reshape(shape)
    return found


# ranks, EP size, TP size; the model has dense layers, shared experts and latents, each of which TP cuts
@pytest.mark.parametrize(
    "layouts",
    [
        [(2, 2, 2), (1, 1, 1), (4, 4, 2)],
        pytest.param([(4, 4, 4), (4, 2, 2), (2, 2, 1), (4, 4, 4), (2, 2, 2)], marks=pytest.mark.slow),
    ],
    ids=["briefly", "at length"],
)
def test_a_run_that_changes_replicas_at_every_step_trains_as_one_that_never_does(tmp_path, layouts):
    [expected] = run_ranks(unbroken, 1, len(layouts), threads_per_rank=1)
    before = None
    for number, (ranks, ep_size, tp_size) in enumerate(layouts):
        of_ranks = run_ranks(one_step, ranks, str(tmp_path), number, ep_size, tp_size, threads_per_rank=1)
        for of_rank in of_ranks:
            assert of_rank["told"] == pytest.approx(expected[number], rel=1e-9), (number, tp_size)
        if before is not None:
            assert_same(joined(of_ranks, "loaded"), before)
        before = joined(of_ranks, "trained")
    assert "exp_avg_sq.decoder.layers.0.mlp.linear_fc1.weight" in before
    [exported] = run_ranks(read_without_a_model, 1, str(tmp_path), threads_per_rank=1)
    assert_same(exported, {name: value for name, value in before.items() if not name.startswith("exp_avg")})
