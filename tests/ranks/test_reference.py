"""The reference policy on real ranks: swapped in around updates, saved, and loaded at another EP size."""

from pathlib import Path

import gradient_ranks as gradients
import numpy as np
import pytest

from flexfloor.launch import run_ranks


def two_steps(ep_size, swap):
    """Two updates; with `swap` the reference stands in the model for a pass between them."""
    from flexfloor.train.reference import ReferenceWeights

    ddp, groups = gradients.build(ep_size, dtype="float32")
    reference = ReferenceWeights(ddp.module)
    start = gradients.recompute(ddp, groups, budget=16)
    step = gradients.make_step(ddp, groups, gradients.make_case(budget=25), **gradients.ADAM)
    step.update(gradients.as_samples(gradients.NINE, "grpo"))
    told = {"start": start, "moved": gradients.recompute(ddp, groups, budget=16)}
    if swap:
        with reference.swapped_in():
            told["inside"] = gradients.recompute(ddp, groups, budget=16)
        told["after"] = gradients.recompute(ddp, groups, budget=16)
    told["metrics"] = step.update(gradients.as_samples(gradients.SHUFFLED, "grpo"))
    return told | {"weights": gradients.named(ddp, lambda p: p)}


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize(("world_size", "ep_size"), [(1, 1), (2, 2), (4, 2)])
def test_a_reference_pass_sees_the_first_policy_and_leaves_no_trace(world_size, ep_size):
    def run(swap):
        return run_ranks(two_steps, world_size, ep_size, swap, total_timeout_seconds=120, threads_per_rank=1)

    for swapped, plain in zip(run(True), run(False), strict=True):
        assert same(swapped["inside"], swapped["start"])
        assert not same(swapped["moved"], swapped["start"])
        assert same(swapped["after"], swapped["moved"])
        assert swapped["metrics"] == plain["metrics"]
        for name, value in plain["weights"].items():
            np.testing.assert_array_equal(swapped["weights"][name], value, err_msg=name)


def save_a_moved_policy(folder):
    """Weights of the reference and of the policy, which a checkpoint in `folder` holds."""
    from flexfloor.train.checkpoint import save_checkpoint
    from flexfloor.train.reference import ReferenceWeights

    ddp, groups = gradients.build(2)
    reference, frozen = ReferenceWeights(ddp.module), gradients.named(ddp, lambda p: p)
    step = gradients.make_step(ddp, groups, gradients.make_case(), **gradients.ADAM)
    step.update(gradients.as_samples(gradients.NINE, "grpo"))
    for number, kept in ((1, reference), (2, None)):
        parts = {"optimizer": step.optimizer, "scheduler": step.scheduler, "extra": {}}
        save_checkpoint(Path(folder), number, model=[ddp], reference=kept, **parts)
    return frozen, gradients.named(ddp, lambda p: p)


def load_both(path, ep_size):
    """(reference, policy) in the checkpoint at `path`."""
    from flexfloor.train.checkpoint import has_reference, load_weights

    assert has_reference(path)
    ddp, _ = gradients.build(ep_size)
    found = []
    for of_reference in (True, False):
        load_weights(path, model=[ddp], of_reference=of_reference)
        found.append(gradients.named(ddp, lambda p: p))
    return found


def whole(per_rank, which):
    return {name: value for rank in per_rank for name, value in rank[which].items()}


def test_a_checkpoint_holds_both_policies_for_any_layout(tmp_path):
    from flexfloor.train.checkpoint import has_reference

    saved = run_ranks(save_a_moved_policy, 2, str(tmp_path), total_timeout_seconds=120, threads_per_rank=1)
    assert not has_reference(tmp_path / "step_000002")
    for world_size, ep_size in ((1, 1), (4, 4)):
        path = tmp_path / "step_000001"
        loaded = run_ranks(
            load_both, world_size, path, ep_size, total_timeout_seconds=120, threads_per_rank=1
        )
        for which in (0, 1):
            expected, got = whole(saved, which), whole(loaded, which)
            assert expected.keys() == got.keys()
            for name, value in expected.items():
                np.testing.assert_array_equal(got[name], value, err_msg=name)
    assert not same(whole(saved, 0).values(), whole(saved, 1).values())
