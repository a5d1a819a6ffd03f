"""`model.path` fills the model section; what a user says against config.json is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import released

from flexfloor.config import Config, compose, to_yaml
from flexfloor.errors import ConfigError
from flexfloor.models.hf_config import read_hf_config

FITTING = [
    "data.tasks=[{name: spell_backward}]",
    "data.max_prompt_length=512",
    "data.max_response_length=128",
]


def composed(folder: Path, *words: str, **more: object) -> Config:
    return compose([*FITTING, f"model.path='{folder}'", *words], **more)


@pytest.mark.parametrize("name", released.RELEASED)
def test_the_section_is_that_of_the_file(name: str, tmp_path: Path) -> None:
    config = composed(released.write(tmp_path, name), "model.dtype=float64")
    fields = read_hf_config(tmp_path).fields
    assert {field: getattr(config.model, field) for field in fields} == fields
    assert (config.model.dtype, config.model.path) == ("float64", str(tmp_path))


def test_what_is_set_to_the_same_and_what_the_file_does_not_say_may_be_set(tmp_path: Path) -> None:
    words = ["model.num_layers=3", "model.rope_scaling.factor=40", "model.moe_router_bias_update_rate=0.01"]
    config = composed(released.write(tmp_path, "DeepSeek-V3"), *words)
    assert (config.model.num_layers, config.model.moe_router_bias_update_rate) == (3, 0.01)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["model.hidden_size=64"], "model.hidden_size = 64: must be 32 as {file} says, or left out"),
        # its own default, but said
        (["model.num_layers=4"], "model.num_layers = 4: must be 3 as {file} says"),
        (["model.rope_scaling.factor=8"], "model.rope_scaling.factor = 8.0: must be 40.0 as {file} says"),
        (["model=tiny-qwen3-moe"], "model.moe_ffn_hidden_size = 128: must be 24 as {file} says"),
        (
            ["data.max_response_length=129"],
            "data.max_response_length = 129: must be at most 128: .*640 of {file}",
        ),
    ],
)
def test_what_is_set_to_something_else_is_refused(words: list[str], complaint: str, tmp_path: Path) -> None:
    released.write(tmp_path, "DeepSeek-V3")
    with pytest.raises(ConfigError, match=complaint.format(file=tmp_path / "config.json")):
        composed(tmp_path, *words)


def test_a_recipe_names_the_folder_or_contradicts_it(tmp_path: Path) -> None:
    folder, recipes = released.write(tmp_path, "Qwen3-MoE"), tmp_path / "recipe"
    recipes.mkdir()
    recipe = f"# @package _global_\nmodel:\n  path: {folder}\n"
    (recipes / "mine.yaml").write_text(recipe)
    (recipes / "wrong.yaml").write_text(recipe + "  num_experts: 16\n")
    config = compose(["recipe=mine", *FITTING], tmp_path)
    assert (config.model.family, config.model.num_experts) == ("qwen3_moe", 12)
    with pytest.raises(ConfigError, match=r"model.num_experts = 16: must be 12"):
        compose(["recipe=wrong", *FITTING], tmp_path)
    # its own default, but written; what the model of every run says too is not told from being left alone
    (recipes / "wrong.yaml").write_text(recipe + "  norm_eps: 1.0e-5\n")
    with pytest.raises(ConfigError, match=r"model.norm_eps = 1e-05: must be 1e-06 as .* says, or left out"):
        compose(["recipe=wrong", *FITTING], tmp_path)
    (recipes / "wrong.yaml").write_text(recipe + "  rope_scaling: {factor: null}\n  num_layers: 4\n")
    assert compose(["recipe=wrong", *FITTING], tmp_path).model.num_layers == config.model.num_layers != 4


def test_printed_yaml_composes_to_the_same(tmp_path: Path) -> None:
    folder, recipes = released.write(tmp_path, "DeepSeek-V2"), tmp_path / "recipe"
    config = composed(folder)
    recipes.mkdir()
    (recipes / "printed.yaml").write_text("# @package _global_\n" + to_yaml(config))
    assert compose(["recipe=printed"], tmp_path) == config


def test_the_tokenizer_may_be_the_folders_own(tmp_path: Path) -> None:
    config = composed(released.write(tmp_path, "Mixtral"), "tokenizer.path='${model.path}'")
    assert config.tokenizer.path == str(tmp_path)


def test_a_file_that_cannot_be_read_is_complained_about(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"holds no config.json"):
        composed(tmp_path)


def test_where_weights_come_from_makes_no_other_model(tmp_path: Path) -> None:
    model = composed(released.write(tmp_path, "Mixtral")).model
    identity = model.identity()
    assert "path" not in identity and identity["num_layers"] == 2
    assert identity["rope_scaling"] is None, "as in checkpoints from before it could be"
    released.write(tmp_path, "DeepSeek-V3")
    assert composed(tmp_path).model.identity()["rope_scaling"]["factor"] == 40.0
