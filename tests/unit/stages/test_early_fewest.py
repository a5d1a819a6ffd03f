"""How many ranks must have left before they can train: what the shrink decision counts on."""

from types import SimpleNamespace

import pytest

from flexfloor.overlap.floor import LeaseMemory
from flexfloor.overlap.placement import lease_placement
from flexfloor.stages.early_update import EarlyUpdate


@pytest.mark.parametrize(
    ("guests", "rungs", "fewest"), [(2, (3, 2, 1), 2), (6, (3, 1), 1), (1, (3, 2, 1), 3)]
)
def test_the_highest_rung_whose_lease_fits_tells(guests, rungs, fewest):
    # 8 experts on 4 ranks: a lease of 1, 2 and 3 ranks brings 6, 2 and 1 guests to each
    assert found(guests, rungs) == fewest


def test_no_rung_may_release_enough():
    assert found(1, (3, 2)) is None


def found(guests, rungs):
    memory = LeaseMemory(budget=guests, weights=0, training=0, guest=1, row=0, rows=0)
    update = SimpleNamespace(
        _layout=SimpleNamespace(ep_size=4),
        _worker=SimpleNamespace(engine=SimpleNamespace(ladder=SimpleNamespace(rungs=rungs))),
        _memory=memory,
        _placement=lambda rung: lease_placement(8, 4, rung),
    )
    return EarlyUpdate.fewest.fget(update)
