"""Composing: what a good command line gives, and what a bad one is told."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import yaml

from flexfloor.config import Config, compose, to_yaml
from flexfloor.data.config import TaskConfig
from flexfloor.errors import ConfigError

GLOBAL = "# @package _global_\n"
TASK = "data.tasks=[{name: spell_backward}]"


def _complaint(*overrides: str, config_dir: Path | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        compose([TASK, *overrides], config_dir)
    return str(caught.value)


def test_overrides_reach_their_fields_with_their_types() -> None:
    config = compose(
        [TASK, "actor.optim.lr=3e-4", "rollout.n=4", "launch.threads_per_rank=2", "data.shuffle=no"]
    )
    assert config.actor.optim.lr == 3e-4
    assert (config.rollout.n, config.launch.threads_per_rank, config.data.shuffle) == (4, 2, False)
    assert config.data.tasks == [TaskConfig(name="spell_backward")]


def test_what_is_not_overridden_keeps_the_default_of_its_field() -> None:
    composed, plain = compose([TASK]), Config()
    assert composed.actor == plain.actor and composed.rollout == plain.rollout
    assert composed.launch == plain.launch and composed.sft == plain.sft


def test_folders_follow_the_names_of_the_run() -> None:
    config = compose([TASK, "trainer.project_name=spelling", "trainer.experiment_name=first"])
    assert config.trainer.default_local_dir == "runs/spelling/first"
    assert config.generate.output == "runs/spelling/first/rollout.jsonl"


def test_a_single_text_is_taken_for_a_list_of_one_as_in_verl() -> None:
    config = compose(
        ["data.train_files=rows.jsonl", "data.val_files='with, comma.jsonl'", "trainer.logger=jsonl"]
    )
    assert config.data.train_files == ["rows.jsonl"]
    assert config.data.val_files == ["with, comma.jsonl"]
    assert config.trainer.logger == ["jsonl"]


def test_names_below_a_mapping_are_the_users_own() -> None:
    config = compose([TASK, "reward.custom_reward_function.kwargs.strict=true"])
    assert config.reward.custom_reward_function.kwargs == {"strict": True}


def test_printed_yaml_composes_to_the_same_configuration(tmp_path: Path) -> None:
    first = compose([TASK, "actor.optim.lr=3e-4", "model.head_dim=16", "trainer.experiment_name=again"])
    (tmp_path / "recipe").mkdir()
    text = f"{GLOBAL}{to_yaml(first)}"
    (tmp_path / "recipe" / "again.yaml").write_text(text, encoding="utf-8")
    assert compose(["recipe=again"], tmp_path) == first
    assert yaml.safe_load(text) == dataclasses.asdict(first)


@pytest.mark.parametrize(
    ("override", "name", "hint"),
    [
        ("recipe=tiny-mixtrl", "recipe = tiny-mixtrl", "did you mean tiny-mixtral"),
        ("recipe=tiny_mixtral", "recipe = tiny_mixtral", "did you mean tiny-mixtral"),
        ("model=tiny-mixtal", "model = tiny-mixtal", "did you mean tiny-mixtral"),
        ("recipe=zzz", "recipe = zzz", "there is deepseek-v2-lite, deepseek-v3, "),
        ("actor.optim.lrr=1", "actor.optim.lrr", "did you mean actor.optim.lr?"),
        ("actr.optim.lr=1", "actr.optim.lr", "did you mean actor.optim.lr?"),
        ("actor.optm.lr=1", "actor.optm.lr", "did you mean actor.optim.lr?"),
        ("+actor.optm.lr=1", "actor.optm.lr", "did you mean actor.optim.lr?"),
        ("++actor={clip_ratio_lo: 1}", "actor.clip_ratio_lo", "did you mean actor.clip_ratio_low"),
        ("+actor={optim: {lrr: 1}}", "actor.optim.lrr", "did you mean actor.optim.lr?"),
        ("recipes=tiny-mixtral", "recipes", "did you mean recipe?"),
        ("clip_ratio_low=0.1", "clip_ratio_low", "did you mean actor.clip_ratio_low?"),
        ("lr=1", "lr", "did you mean actor.optim.lr or sft.optim.lr?"),
        ("actor_rollout_ref.rollout.n=4", "actor_rollout_ref.rollout.n", "did you mean rollout.n"),
        ("sft.lr=1", "sft.lr", "did you mean sft.optim.lr?"),
        ("++data.tasks.0={nam: x}", "data.tasks[0].nam", "did you mean data.tasks[0].name?"),
        ("data.tasks=[{data: 1}]", "data.tasks[].data", "no such field"),
        ("data.tasks=[{nam: x}]", "data.tasks[].nam", "did you mean data.tasks[].name?"),
        ("zzz=1", "zzz", "the top level has launch, parallel, model"),
        ("rollout.zzz=1", "rollout.zzz", "rollout has temperature, top_p"),
    ],
)
def test_an_unknown_name_is_told_with_the_nearest(override: str, name: str, hint: str) -> None:
    message = _complaint(override)
    assert message.startswith(name) and hint in message


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("actor.optim.lr=abc", "actor.optim.lr = 'abc': must be a number"),
        ("actor.optim.lr=null", "actor.optim.lr = null: must be a number"),
        ("actor.optim.lr=???", "actor.optim.lr: has no value, must be a number"),
        ("trainer.seed=1.5", "trainer.seed = 1.5: must be a whole number"),
        ("launch.threads_per_rank=x", "launch.threads_per_rank = 'x': must be a whole number, or null"),
        ("data.shuffle=maybe", "data.shuffle = 'maybe': must be true or false"),
        ("data.train_files=3", "data.train_files = 3: must be a list [...] of texts"),
        ("actor.optim.betas=[a,b]", "actor.optim.betas[0] = 'a': must be a number"),
        ("data.tasks=[{name: x, weight: much}]", "data.tasks[].weight = 'much': must be a number"),
        ("reward.custom_reward_function.kwargs=4", "must be a mapping"),
        ("actor=5", "actor = 5: must be a section"),
        ("actor=${sft}", "actor = '${sft}': must be a section"),
        ("actor.optim=${data}", "actor.optim = '${data}': must be a section"),
        ("data.val_files=${data.train_files}", "data.val_files = '${data.train_files}': must be a list"),
        ("reward.custom_reward_function.kwargs=${actor}", "kwargs = '${actor}': must be a mapping"),
        ("generate.output=${actor}", "generate.output: While dereferencing interpolation '${actor}'"),
        ("trainer.seed=${data.nope}", "trainer.seed: Interpolation key 'data.nope' not found"),
        ("trainer.seed=${oc.env:FLEXFLOOR_NOT_SET}", "Environment variable 'FLEXFLOOR_NOT_SET' not found"),
    ],
)
def test_a_value_of_the_wrong_kind_is_told_with_field_value_and_kind(override: str, message: str) -> None:
    assert message in _complaint(override)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("tiny-mixtral", "'tiny-mixtral': a setting is written name=value"),
        ("", "'': a setting is written name=value"),
        ("=4", "'=4': a setting is written name=value"),
        ("trainer.seed=[1", "'trainer.seed=[1' is not a setting name=value"),
        ("trainer.experiment_name=a=b", "quotes keep a value"),
        ("trainer.seed=1,2", "trainer.seed=1,2: one value is needed"),
        ("~actor.optim.lr", "a field cannot be removed"),
        ("recipe=null", "must be recipe=<name of a recipe>"),
        ("model=3", "model = 3: must be a section"),
        ("hydra.run.dir=x", "Hydra's own settings have no effect here"),
    ],
)
def test_a_word_that_is_no_setting_is_told_what_it_lacks(word: str, message: str) -> None:
    assert message in _complaint(word)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "# @package _global_\ntrainr:\n  seed: 1",
            "'recipe/mine': trainr: no such field; did you mean trainer?",
        ),
        (
            "# @package _global_\ntrainer:\n  sed: 1",
            "'recipe/mine': trainer.sed: no such field; did you mean",
        ),
        (
            "# @package _global_\ntrainer:\n  seed: x",
            "'recipe/mine': trainer.seed = 'x': must be a whole number",
        ),
        ("# @package _global_\ndefaults:\n  - override /model: nope", "model = nope: no such model"),
        ("# @package _global_\ndefaults: 3", "Invalid defaults list in 'recipe/mine'"),
        ("trainer:\n  seed: 1", "the first line of a recipe must be: # @package _global_"),
        ("trainer: [", 'mine.yaml", line '),
        ("a:\n  b: 1\n  b: 2", "found duplicate key b"),
    ],
)
def test_a_faulty_recipe_file_is_told_by_name(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "recipe").mkdir()
    (tmp_path / "recipe" / "mine.yaml").write_text(text, encoding="utf-8")
    assert message in _complaint("recipe=mine", config_dir=tmp_path)


def test_a_recipe_in_an_own_folder_may_build_on_a_shipped_one(tmp_path: Path) -> None:
    folder = tmp_path / "it's mine, all"
    (folder / "recipe").mkdir(parents=True)
    lines = ["# @package _global_", "defaults: [tiny-mixtral, _self_]", "trainer: {total_training_steps: 3}"]
    (folder / "recipe" / "mine.yaml").write_text("\n".join(lines), encoding="utf-8")
    mine, shipped = compose(["recipe=mine"], folder), compose(["recipe=tiny-mixtral"])
    assert mine.trainer.total_training_steps == 3
    assert mine.data == shipped.data and mine.launch == shipped.launch


def test_settings_that_do_not_fit_each_other_are_told() -> None:
    assert _complaint("launch.nproc=4", "parallel.ep=3").startswith("launch.nproc = 4: must be a multiple")


def test_a_missing_config_folder_is_told(tmp_path: Path) -> None:
    assert str(tmp_path / "nope") in _complaint(config_dir=tmp_path / "nope")


def test_composing_twice_gives_independent_configurations() -> None:
    first, second = compose([TASK]), compose([TASK, "rollout.n=3"])
    first.data.tasks.clear()
    assert len(second.data.tasks) == 1 and (first.rollout.n, second.rollout.n) == (Config().rollout.n, 3)
