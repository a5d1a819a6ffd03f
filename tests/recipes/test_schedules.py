"""Whole runs under each schedule: the same tokens and the same weights, and what a run remembers."""

import json

import pytest
from small_run import learned, metrics_of, run

from flexfloor.stages.planner import COST_FILE, HISTORY_FILE
from flexfloor.track.lengths import LENGTHS_FILE, read_lengths

LOGGED = ["trainer.logger=[console,jsonl]", "elastic=on", "elastic.interval=2"]


@pytest.fixture(scope="module")
def static(tmp_path_factory):
    folder = tmp_path_factory.mktemp("static")
    assert run(folder, *LOGGED, "schedule=static", "elastic=off") == 0
    return folder


@pytest.mark.parametrize("policy", ["longest_first", "flexfloor"])
def test_a_schedule_changes_nothing_that_is_learned(static, policy, tmp_path):
    assert run(tmp_path, *LOGGED, f"schedule={policy}", "rollout.max_live_sequences=2") == 0
    expected, found = metrics_of(static), metrics_of(tmp_path)
    for step in expected:
        assert learned(found[step]) == pytest.approx(learned(expected[step]), rel=1e-4, abs=1e-5), step
    for step, lengths in read_lengths(static / LENGTHS_FILE).items():
        assert read_lengths(tmp_path / LENGTHS_FILE)[step].num_tokens == lengths.num_tokens


def test_a_run_tells_what_it_predicted_and_leaves_what_it_learned(static):
    metrics = metrics_of(static)
    assert 0 <= metrics[2]["schedule/coverage80"] <= 1
    assert metrics[2]["schedule/length_error"] >= 0
    assert (static / HISTORY_FILE).is_file()
    assert json.loads((static / COST_FILE).read_text())["passes"]
    lengths = read_lengths(static / LENGTHS_FILE)
    assert list(lengths) == [1, 2] and lengths[1].predicted_p50 is not None


def test_an_oracle_gets_the_lengths_of_an_earlier_run(static, tmp_path):
    words = ["schedule=oracle", f"rollout.lengths_from={static / LENGTHS_FILE}", "trainer.seed=77"]
    assert run(tmp_path, *LOGGED, *words) == 0
    expected, found = (read_lengths(folder / LENGTHS_FILE) for folder in (static, tmp_path))
    assert [found[step].num_tokens for step in (1, 2)] == [expected[step].num_tokens for step in (1, 2)]
    # another seed samples other tokens: only the lengths are those of the earlier run
    assert learned(metrics_of(tmp_path)[1]) != learned(metrics_of(static)[1])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["schedule=oracle"], "schedule.policy = 'oracle': must be static, longest_first or flexfloor"),
        (["rollout.lengths_from=nowhere.jsonl"], "rollout.lengths_from: nowhere.jsonl is no file"),
        (["schedule.history_path=nowhere.parquet"], "schedule.history_path: nowhere.parquet cannot be read"),
        (["schedule.max_slowdown=-1"], "schedule.max_slowdown = -1.0: must be"),
        (["schedule.policy=flexflor"], "schedule.policy = 'flexflor': must be one of static"),
    ],
)
def test_what_cannot_be_scheduled_is_said_before_a_rank_starts(words, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("flexfloor.launch.run_ranks", None)
    assert run(tmp_path / "run", *words) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_too_few_steps_to_replay_are_named(static, tmp_path, capsys):
    words = [f"rollout.lengths_from={static / LENGTHS_FILE}", "trainer.total_training_steps=3"]
    assert run(tmp_path, *words) == 2
    assert "has no step 3 of trainer.total_training_steps" in " ".join(capsys.readouterr().err.split())


def test_a_resumed_run_plans_with_what_it_had_seen(static, tmp_path):
    words = [*LOGGED, "schedule=flexfloor", "trainer.save_freq=1", "trainer.test_freq=-1"]
    assert run(tmp_path / "whole", *words, "trainer.total_training_steps=3") == 0
    assert run(tmp_path / "parts", *words, "trainer.total_training_steps=2") == 0
    assert run(tmp_path / "parts", *words, "trainer.total_training_steps=3") == 0
    whole, parts = (read_lengths(tmp_path / name / LENGTHS_FILE) for name in ("whole", "parts"))
    assert whole == parts
