"""The collector rests in the block and is afterwards what it was."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from flexfloor.train.garbage import uncollected


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Whatever a test does to the collector ends with it."""
    yield
    gc.enable()


@pytest.mark.parametrize("enabled", [True, False])
def test_rests_and_is_then_as_before(enabled: bool) -> None:
    (gc.enable if enabled else gc.disable)()
    with pytest.raises(ValueError, match="in the block"), uncollected():
        assert not gc.isenabled()
        raise ValueError("in the block")
    assert gc.isenabled() is enabled


def test_each_call_of_a_decorated_function() -> None:
    during = uncollected()(gc.isenabled)
    assert [during(), gc.isenabled(), during(), gc.isenabled()] == [False, True, False, True]
