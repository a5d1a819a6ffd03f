"""Whole runs whose expert group shrinks: they learn what they learn with all ranks kept."""

import pytest
from small_run import learned, metrics_of, run

from flexfloor.ledger.store import read_ledger
from flexfloor.ledger.types import ROLLOUT

LOGGED = "trainer.logger=[console,jsonl]"
EAGER = [
    "elastic=on",
    "elastic.policy=greedy",
    "elastic.interval=2",
    "elastic.sequences_per_rank=12",
    LOGGED,
    "overlap=off",
]

DETACHED = [*EAGER, "elastic.policy=idle", "elastic.detach=true"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folders = {}
    for name, words in {"on": EAGER, "off": ["elastic=off", LOGGED], "detached": DETACHED}.items():
        folders[name] = tmp_path_factory.mktemp(name)
        assert run(folders[name], *words) == 0
    return folders


@pytest.mark.parametrize("way", ["on", "detached"])
def test_a_run_that_releases_ranks_learns_the_same(runs, way):
    on, off = (metrics_of(runs[name]) for name in (way, "off"))
    assert on.keys() == off.keys() == {0, 1, 2}
    for step in on:
        assert learned(on[step]) == pytest.approx(learned(off[step]), rel=1e-4, abs=1e-5), step


def test_what_the_release_saved_is_told(runs):
    for step in (1, 2):
        on, off = (metrics_of(runs[name])[step] for name in ("on", "off"))
        assert on["rollout/shrinks"] == 1 and off["rollout/shrinks"] == 0
        assert on["rollout/rank_steps"] < off["rollout/rank_steps"]
        assert on["rollout/active_ranks"] < 2 == pytest.approx(off["rollout/active_ranks"], abs=0.1)
        assert on["rollout/occupied_fraction"] < off["rollout/occupied_fraction"]
        assert on["ledger/shrinking_seconds"] > 0 == off["ledger/shrinking_seconds"]
        assert on["rollout/moved_sequences"] > 0 and on["rollout/moved_bytes"] > 0


def test_the_ledger_shows_generating_shrinking_and_waiting_of_the_released_rank(runs):
    steps = [records for records in read_ledger(runs["on"] / "ledger.jsonl") if records[0].step > 0]
    assert len(steps) == 2
    for first, second in steps:
        states = [str(each.state) for each in second.intervals if each.stage == ROLLOUT]
        assert states == ["generating", "shrinking", "generating", "waiting"]
        assert first.released_s is None
        assert 0 < second.released_s < max(each.end_s for each in first.intervals if each.stage == ROLLOUT)
        assert ROLLOUT in {each.stage for each in second.intervals if each.start_s >= second.released_s}


def test_ranks_that_part_are_released_each_at_its_own_end(runs):
    """Both generate by themselves after two passes; what each did tiles the step."""
    metrics, rollouts = metrics_of(runs["detached"]), 0
    for records in read_ledger(runs["detached"] / "ledger.jsonl"):
        if records[0].step == 0:
            continue
        assert metrics[records[0].step]["rollout/detached_ranks"] == 2
        for each in records:
            states = [str(i.state) for i in each.intervals if i.stage == ROLLOUT]
            assert states[:3] == ["generating", "shrinking", "generating"]
            [last] = [i.end_s for i in each.intervals if i.stage == ROLLOUT and i.state == "generating"][1:]
            assert each.released_s == pytest.approx(last, abs=1e-9)
        rollouts += 1
    assert rollouts == 2
