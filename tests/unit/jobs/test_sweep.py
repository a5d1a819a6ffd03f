"""Words with several values become one job for each combination, each with a folder of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from flexfloor.config.sweep import sweep
from flexfloor.errors import ConfigError

TASK = "data.tasks=[{name: spell_backward}]"


def values(words: list[str], *names: str) -> list[tuple[object, ...]]:
    """The settings `names` (dotted) of each job."""
    found = []
    for job in sweep([TASK, *words]):
        row = []
        for name in names:
            value: object = job.config
            for part in name.split("."):
                value = getattr(value, part)
            row.append(value)
        found.append(tuple(row))
    return found


def complaint(*words: str) -> str:
    with pytest.raises(ConfigError) as raised:
        sweep([TASK, *words])
    return str(raised.value)


def test_every_combination_is_a_job_and_the_last_word_changes_fastest() -> None:
    found = values(["rollout.n=2,4", "actor.optim.lr=1e-5,1e-4"], "rollout.n", "actor.optim.lr")
    assert found == [(2, 1e-5), (2, 1e-4), (4, 1e-5), (4, 1e-4)]


def test_hydras_other_ways_to_write_several_values() -> None:
    assert values(["rollout.n=range(2,5)"], "rollout.n") == [(2,), (3,), (4,)]
    assert values(["rollout.n=choice(2,8)"], "rollout.n") == [(2,), (8,)]
    families = values(["recipe=tiny-mixtral,tiny-qwen3-moe"], "model.family")
    assert families == [("mixtral",), ("qwen3_moe",)]
    assert set(families) <= set(values(["recipe=glob(tiny-*)"], "model.family"))
    assert values(["trainer.logger=console,[console,jsonl]"], "trainer.logger") == [
        (["console"],),
        (["console", "jsonl"],),
    ]


def test_words_with_one_value_hold_for_every_job_as_they_are_written() -> None:
    names = ("trainer.seed", "trainer.project_name", "trainer.logger")
    found = values(
        ["trainer.seed=1,2", "trainer.project_name='a,b'", "trainer.logger=[console,jsonl]"], *names
    )
    assert found == [(seed, "a,b", ["console", "jsonl"]) for seed in (1, 2)]


def test_label_folder_and_experiment_say_what_is_a_jobs_own() -> None:
    jobs = sweep([TASK, "trainer.experiment_name=mine", "rollout.n=2,4", "trainer.test_freq=-1"])
    assert [job.label for job in jobs] == ["rollout.n=2", "rollout.n=4"]
    assert [job.config.trainer.default_local_dir for job in jobs] == [
        "runs/flexfloor/mine/rollout.n=2",
        "runs/flexfloor/mine/rollout.n=4",
    ]
    assert [job.config.trainer.experiment_name for job in jobs] == ["mine rollout.n=2", "mine rollout.n=4"]
    assert jobs[0].config.generate.output == "runs/flexfloor/mine/rollout.n=2/rollout.jsonl"


def test_the_same_words_find_the_same_folders_again() -> None:
    words = ["rollout.n=2,4", "actor.optim.lr=1e-5,1e-4"]
    first = values(words, "trainer.default_local_dir")
    assert first == values(words, "trainer.default_local_dir") and len(set(first)) == 4


@pytest.mark.parametrize("folder", ["it's", "a\\b", "end\\", "a\\'b", "x=1,y", "a b", "é", "$HOME"])
def test_a_folder_of_any_name_stays_that_folder(folder: str, tmp_path: Path) -> None:
    written = folder.replace("\\'", "\\\\\\'") if "\\'" in folder else folder.replace("'", "\\'")
    written = written + "\\" if written.endswith("\\") else written
    found = values([f"trainer.default_local_dir='{written}'", "rollout.n=2,3"], "trainer.default_local_dir")
    assert found == [(f"{folder}/rollout.n=2",), (f"{folder}/rollout.n=3",)]


def test_values_that_no_folder_can_be_named_after_still_have_folders_of_their_own() -> None:
    long = [f"data.{split}_files=[{split * 60}],[/{split}]" for split in ("train", "val")]
    words = ["data.tasks=[]", *long]
    paths = [Path(path) for (path,) in values(words, "trainer.default_local_dir")]
    assert len({path.name for path in paths}) == 4
    assert all(path.parent == Path("runs/flexfloor/default") and len(path.name) < 200 for path in paths)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["rollout.n=2"], "-m runs a job for each of several values, written name=a,b; there are none"),
        (["rollout.n=2,2"], "rollout.n=2: two jobs of the sweep would write there"),
        (["rollout.n=2,1"], "job rollout.n=1: rollout.n = 1: must be 2 or more"),
        (["rollout.nn=2,3"], "job rollout.nn=2: rollout.nn: no such field; did you mean rollout.n"),
        (["recipe=tiny-mixtral,tiny-mixtrl"], "job recipe=tiny-mixtrl: recipe = tiny-mixtrl: no such recipe"),
        (["actor.optim.lr=interval(0,1)"], "does not support sweep type : INTERVAL"),
        (["recipe=glob(nothing-*)"], "recipe: there is no value to run a job for"),
        (["rollout.n=2,3", "rollout.n"], "a setting is written name=value"),
        (["rollout.n=2,3", "generate.output=out.jsonl"], "generate.output = out.jsonl: two jobs"),
        (["hydra.sweep.dir=a,b"], "Hydra's own settings have no effect here"),
    ],
)
def test_what_cannot_be_meant_is_told_and_names_the_job(words: list[str], message: str) -> None:
    assert message in complaint(*words)
