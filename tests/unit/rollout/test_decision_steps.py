"""What a group does of what was decided, and in which order."""

from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

from flexfloor.rollout.generation import Generation
from flexfloor.schedule.shrink import Standing, Step


class Active:
    """A group of four that writes down what it is told to do."""

    def __init__(self, step, *, can_part=True, stays=True):
        self.size, self.is_released, self.done = 4, False, []
        self._step, self._can_part, self._stays = step, can_part, stays

    def standings(self, batch, num_finished):
        self.done.append(f"told by {self.size}")
        return [Standing(unfinished=3, kv_tokens=9, finished=0)] * self.size

    def decide(self, standings):
        return self._step

    def can_part(self, standings, size):
        assert len(standings) == size == self.size
        return self._can_part

    def shrink(self, size, standings, batch, load):
        self.size, self.is_released = size, not self._stays
        self.done.append(f"to {size}")

    def detach(self, standings, batch):
        self.done.append(f"{len(standings)} part")

    def rebalance(self, standings, batch):
        self.done.append("even out queues")
        return 0


def steps_of(active):
    generation = Generation.__new__(Generation)
    generation.active, generation.batch, generation.finished = active, SimpleNamespace(), []
    generation.load = SimpleNamespace(counts=lambda: np.zeros((2, 8)))
    generation.releases, generation.shrink_samples, generation.moved_sequences = None, [], 0
    generation._become_fewer = lambda change, on_shrink: (change(), 0.5)[1]
    generation._decide(nullcontext)
    return active.done[1:], [(each.before, each.after) for each in generation.shrink_samples]


@pytest.mark.parametrize(
    "active, done, samples",
    [
        (Active(Step(size=4)), ["even out queues"], []),
        (Active(Step(size=2)), ["to 2"], [(4, 2)]),
        (Active(Step(size=4, parts=True)), ["4 part"], [(4, 1)]),
        (Active(Step(size=2, parts=True)), ["to 2", "told by 2", "2 part"], [(4, 2), (2, 1)]),
        (Active(Step(size=2, parts=True), stays=False), ["to 2"], [(4, 2)]),
        (Active(Step(size=2, parts=True), can_part=False), ["to 2", "told by 2"], [(4, 2)]),
    ],
    ids=["all stay", "shrinks", "parts", "shrinks and parts", "is released", "has not the memory after all"],
)
def test_a_group_shrinks_and_parts_at_one_decision(active, done, samples):
    assert steps_of(active) == (done, samples)
