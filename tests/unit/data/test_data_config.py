import pytest
from omegaconf import OmegaConf

from flexfloor.data.config import DataConfig, TaskConfig
from flexfloor.errors import ConfigError


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"train_size": 0}, ["data.train_size=0", "1 or more"]),
        ({"val_size": -1}, ["data.val_size=-1", "0 or more"]),
        ({"seed": -1}, ["data.seed=-1"]),
        ({"val_batch_size": 0}, ["data.val_batch_size=0"]),
        ({"max_prompt_length": 0}, ["data.max_prompt_length=0"]),
        ({"truncation": "middle"}, ["data.truncation='middle'", "error, left, right"]),
        ({"train_files": ["a.jsonl"], "tasks": [TaskConfig(name="ab")]}, ["data.tasks", "data.train_files"]),
        ({"val_files": ["a.jsonl"], "tasks": [TaskConfig(name="ab")]}, ["data.tasks", "data.val_files"]),
    ],
)
def test_a_bad_setting_is_named_with_what_is_allowed(settings, words):
    with pytest.raises(ConfigError) as error:
        DataConfig(**settings)
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"name": ""}, ["data.tasks", "name"]),
        ({"name": "ab", "weight": 0.0}, ["data.tasks[ab].weight=0.0"]),
        ({"name": "ab", "weight": float("nan")}, ["data.tasks[ab].weight=nan"]),
        ({"name": "ab", "config": {"seed": 3}}, ["data.tasks[ab].config.seed", "data.task_seed"]),
        ({"name": "ab", "config": {"size": 3}}, ["data.tasks[ab].config.size", "data.train_size"]),
    ],
)
def test_a_bad_task_is_named(settings, words):
    with pytest.raises(ConfigError) as error:
        TaskConfig(**settings)
    for word in words:
        assert word in str(error.value)


def test_data_from_nowhere_is_refused_when_it_is_needed():
    with pytest.raises(ConfigError, match=r"data\.train_files and data\.tasks"):
        DataConfig().require_source()


def test_the_schema_is_composable():
    overrides = {"tasks": [{"name": "ab", "config": {"length": 4}}], "val_batch_size": 8}
    config = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(DataConfig), overrides))
    assert config == DataConfig(tasks=[TaskConfig(name="ab", config={"length": 4})], val_batch_size=8)
