"""A run whose optimizer's state leaves between updates is the run whose state stays, checkpoints too.

A CPU stands in for the device: its storages give memory back as a GPU's do. That copies are made beside what
a GPU computes, and from pinned memory, it cannot show.
"""

from pathlib import Path

import early_ranks
import numpy as np

from flexfloor.launch import run_ranks


def runs(folder):
    """A run of two steps; one of one and one more whose state leaves; the bytes that it takes while away."""
    from types import SimpleNamespace

    from flexfloor import parallel
    from flexfloor.rollout.engine import RolloutEngine
    from flexfloor.stages import train_step
    from flexfloor.train.optimizer_on_host import OptimizerOnHost

    real, generate, away = train_step.device, RolloutEngine.generate, []
    made, leave = [], OptimizerOnHost.leave

    def watched(self, *args, **kwargs):
        away.append([t.untyped_storage().nbytes() for each in made for t in each._away])
        return generate(self, *args, **kwargs)

    def noted(self):
        made[:] = [self]
        leave(self)

    def run(words, where):
        case = early_ranks.Case(words=(*words, "parallel.ep=1", "trainer.save_freq=1"), pause=0.0)
        found = early_ranks.run_case(case, Path(folder) / where)
        parallel.destroy()
        return found

    two = ("overlap=off", "trainer.total_training_steps=2")
    plain = run(two, "plain")
    train_step.device = SimpleNamespace(is_cpu_host=lambda: False)
    RolloutEngine.generate, OptimizerOnHost.leave = watched, noted
    try:
        offloads = (*two, "actor.offload_optimizer=true")
        run((*offloads, "trainer.total_training_steps=1"), "away")
        resumed = run(offloads, "away")
    finally:
        train_step.device, RolloutEngine.generate, OptimizerOnHost.leave = real, generate, leave
    return plain, resumed, away


def test_updates_and_checkpoints_find_the_state_and_rollouts_do_not(tmp_path):
    limits = {"threads_per_rank": 1, "total_timeout_seconds": 240}
    [(plain, resumed, away)] = run_ranks(runs, 1, str(tmp_path), **limits)
    for name, weight in plain.weights.items():
        np.testing.assert_array_equal(resumed.weights[name], weight, err_msg=name)
    assert resumed.metrics[2]["actor/grad_norm"] == plain.metrics[2]["actor/grad_norm"]
    # before the first update there is no moment; two for each weight then, in a resumed run too
    assert [len(each) for each in away] == [0, 2 * len(plain.weights)]
    assert not any(map(sum, away))
