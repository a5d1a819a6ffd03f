"""Whole runs whose replicas are two ranks: they generate and learn what one rank does."""

import json

import pytest
from small_run import learned, metrics_of, run

from flexfloor.ledger.store import read_ledger
from flexfloor.ledger.types import ROLLOUT

COMMON = ["model.dtype=float64", "trainer.logger=[console,jsonl]"]
ALONE = ["launch.nproc=1", "parallel.ep=1"]
REPLICA = ["launch.nproc=2", "parallel.ep=2", "parallel.tp=2"]
SHRINKING = [
    "launch.nproc=4",
    "parallel.ep=4",
    "parallel.tp=2",
    "elastic.policy=greedy",
    "elastic.interval=2",
    "elastic.sequences_per_rank=12",
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return {words: tmp_path_factory.mktemp(words) for words in ("alone", "replica", "shrinking")}


@pytest.fixture(scope="module")
def alone(folders):
    assert run(folders["alone"], *COMMON, *ALONE) == 0
    return metrics_of(folders["alone"])


def test_a_run_on_one_replica_learns_what_one_rank_does(folders, alone):
    assert run(folders["replica"], *COMMON, *REPLICA) == 0
    metrics = metrics_of(folders["replica"])
    assert metrics.keys() == alone.keys() == {0, 1, 2}
    for step, found in metrics.items():
        assert learned(found) == pytest.approx(learned(alone[step]), rel=1e-6, abs=1e-9), step
    for step in (1, 2):
        for name in ("perf/response_tokens", "rollout/prefilled_tokens", "rollout/moe/max_vio/mean"):
            assert metrics[step][name] == alone[step][name], name
        assert metrics[step]["rollout/peak_kv_bytes"] == alone[step]["rollout/peak_kv_bytes"] / 2


@pytest.mark.slow
def test_a_run_that_releases_replicas_learns_it_too(folders, alone):
    assert run(folders["shrinking"], *COMMON, *SHRINKING) == 0
    metrics = metrics_of(folders["shrinking"])
    for step, found in metrics.items():
        assert learned(found) == pytest.approx(learned(alone[step]), rel=1e-6, abs=1e-9), step
    for step in (1, 2):
        assert metrics[step]["rollout/shrinks"] == 1 and metrics[step]["rollout/moved_sequences"] > 0
        assert metrics[step]["perf/response_tokens"] == alone[step]["perf/response_tokens"]
    for records in read_ledger(folders["shrinking"] / "ledger.jsonl")[1:]:
        assert [record.released_s is None for record in records] == [True, True, False, False]
        for record in records[2:]:
            states = [str(each.state) for each in record.intervals if each.stage == ROLLOUT]
            assert states == ["generating", "shrinking", "generating", "waiting"]


@pytest.mark.slow
def test_generation_alone_runs_on_a_replica(tmp_path):
    assert run(tmp_path, *COMMON, *REPLICA, command="rollout") == 0
    [path] = tmp_path.glob("*.jsonl")
    assert len({json.loads(line)["response"] for line in path.read_text().splitlines()}) > 1
