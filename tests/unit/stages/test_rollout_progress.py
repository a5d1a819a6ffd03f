"""What the console says of a rollout while ranks leave or part."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from flexfloor.parallel import Layout
from flexfloor.rollout.types import PassProgress
from flexfloor.stages.progress import rollout_progress

LAYOUT = Layout(
    world_size=8,
    rank=0,
    tp_size=1,
    tp_rank=0,
    dp_size=8,
    dp_rank=0,
    ep_size=4,
    ep_rank=0,
    edp_size=2,
    edp_rank=0,
    ep_index=0,
)


class Listener:
    """A console and its bar, which keep what they are told."""

    def __init__(self) -> None:
        self.total = 0
        self.told: list[tuple[int, str]] = []

    @contextmanager
    def progress(self, name: str, total: int, unit: str):
        self.total = total
        yield self

    def reach(self, done: int, note: str) -> None:
        self.told.append((done, note))


@pytest.mark.parametrize(
    ("progress", "ending"),
    [
        ({"active": 4}, "responses/s"),
        ({"active": 3}, "responses/s, 3 of 4 ranks"),
        ({"active": 4, "is_detached": True}, "responses/s, 4 ranks each by itself, only rank 0 counted"),
    ],
)
def test_the_active_ranks_are_told(progress: dict, ending: str) -> None:
    console = Listener()
    with rollout_progress(console, LAYOUT, "rollout", 64) as on_pass:
        on_pass(PassProgress(rows=5, finished=7, **progress))
    assert console.total == 32, "the responses of this expert group"
    [(done, note)] = console.told
    assert done == 7 and note.endswith(ending)
