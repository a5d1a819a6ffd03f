"""When a rank trains, in the update or early, what it generated with is gone without a garbage collection.

On a GPU the cache's memory is what the activations of a micro-batch come to lie in.
"""

import gc
import tempfile
import weakref
from pathlib import Path

import early_ranks
import pytest

from flexfloor.launch import run_ranks


def alive_while_training(words, releases, folder):
    """(caches and paths made, those alive at each micro-batch of a lease, those at each of an update)."""
    from flexfloor.overlap.lease import Lease
    from flexfloor.rollout.fast_path import FastPath
    from flexfloor.rollout.kv_cache import KVCache
    from flexfloor.train.step import TrainStep

    made, in_lease, in_update, leases = [], [], [], []

    def noted(original):
        def init(self, *args, **kwargs):
            gc.disable()
            made.append(weakref.ref(self))
            original(self, *args, **kwargs)

        return init

    def train(self, samples):
        leases.append(True)
        originals[Lease, "train"](self, samples)
        leases.pop()

    def accumulate(self, micro_batches, sums):
        found = in_lease if leases else in_update
        found.append(sum(each() is not None for each in made))
        originals[TrainStep, "accumulate"](self, micro_batches, sums)

    changed = {
        (KVCache, "__init__"): noted(KVCache.__init__),
        (FastPath, "__init__"): noted(FastPath.__init__),
        (Lease, "train"): train,
        (TrainStep, "accumulate"): accumulate,
    }
    originals = {(owner, name): getattr(owner, name) for owner, name in changed}
    for (owner, name), function in changed.items():
        setattr(owner, name, function)
    try:
        early_ranks.run_case(early_ranks.Case(words=words, releases=releases), folder)
    finally:
        gc.enable()
        for (owner, name), function in originals.items():
            setattr(owner, name, function)
    return len(made), in_lease, in_update


@pytest.mark.slow
def test_no_cache_and_no_copy_of_weights_is_left_when_a_rank_trains():
    words = ("parallel.ep=2", "trainer.total_training_steps=2", "overlap=on")
    words += ("data.val_size=4", "trainer.test_freq=1")
    limits = {"threads_per_rank": 1, "hang_seconds": 90, "total_timeout_seconds": 240}
    with tempfile.TemporaryDirectory() as folder:
        by_rank = run_ranks(alive_while_training, 2, words, (1,), Path(folder), **limits)
    for made, in_lease, in_update in by_rank:
        # a cache and a path for each rollout: of two steps and of two validations
        assert made == 2 * (2 + 2)
        assert len(in_update) == 2 and set(in_update) == {0}
        assert set(in_lease) <= {0}
    assert by_rank[1][1], "the released rank trains early"
