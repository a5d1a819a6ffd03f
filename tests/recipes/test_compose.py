"""Every shipped configuration composes, says what it is for, and holds only differences."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import yaml

from flexfloor.config import Config, compose

CONF = Path(__file__).parents[2] / "conf"
RECIPES = sorted((CONF / "recipe").glob("*.yaml"))
MODELS = sorted((CONF / "model").glob("*.yaml"))


def test_there_are_recipes_and_models() -> None:
    assert "tiny-mixtral" in {path.stem for path in RECIPES} & {path.stem for path in MODELS}


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_composes_to_what_its_file_says(path: Path) -> None:
    config = dataclasses.asdict(compose([f"recipe={path.stem}"]))
    written = yaml.safe_load(path.read_text(encoding="utf-8"))
    del written["defaults"]
    assert _holds(config, written)


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_holds_only_what_differs_from_the_defaults(path: Path) -> None:
    plain = dataclasses.asdict(Config())
    written = yaml.safe_load(path.read_text(encoding="utf-8"))
    same = [name for name, value in _leaves(written) if _get(plain, name) == value]
    assert not same, f"{path.name} repeats the defaults of {same}"


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_is_short_and_says_how_to_launch_it(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    header = [line for line in lines[: lines.index("defaults:")]]
    assert len(lines) < 60
    assert lines[0] == "# @package _global_"
    assert any(line.startswith("# Launch:") and f"recipe={path.stem}" in line for line in header)
    for word in ("# Hardware:", "# Expected:"):
        assert any(line.startswith(word) for line in header), f"{path.name} has no line {word}"


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_a_model_composes(path: Path) -> None:
    config = compose([f"model={path.stem}", "data.tasks=[{name: spell_backward}]"])
    written = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert _holds(dataclasses.asdict(config.model), written)


@pytest.mark.parametrize(
    ("recipe", "shape"),
    [
        ("tiny-qwen3-moe", {"family": "qwen3_moe", "head_dim": 64, "rope_theta": 1e6}),
        ("tiny-deepseek", {"family": "deepseek_v3", "first_k_dense_replace": 1, "num_shared_experts": 1}),
    ],
)
def test_other_families_recipes_are_the_demos_with_another_model(recipe: str, shape: dict[str, Any]) -> None:
    mixtral, other = compose(["recipe=tiny-mixtral"]), compose([f"recipe={recipe}"])
    assert shape.items() <= dataclasses.asdict(other.model).items()
    names = {field.name for field in dataclasses.fields(Config)} - {"model", "trainer", "generate"}
    assert all(getattr(other, name) == getattr(mixtral, name) for name in names)


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_recipes_release_ranks_unless_told_otherwise(path: Path) -> None:
    assert compose([f"recipe={path.stem}"]).elastic.policy == "guided"
    assert compose([f"recipe={path.stem}", "elastic=off"]).elastic.policy == "never"


def test_the_demo_recipe_is_four_ranks_that_share_the_experts() -> None:
    config = compose(["recipe=tiny-mixtral"])
    assert (config.launch.nproc, config.parallel.ep) == (4, 4)
    assert config.tokenizer.path == "builtin:char"
    assert config.sft.steps > 0 and config.trainer.total_training_steps > 0
    assert config.rollout.n >= 2


def _holds(node: Any, part: Any) -> bool:
    """Whether all of `part` stands in `node`, which may have more names in its mappings."""
    if isinstance(part, dict):
        return all(name in node and _holds(node[name], value) for name, value in part.items())
    if isinstance(part, list):
        return len(node) == len(part) and all(map(_holds, node, part))
    return node == part


def _leaves(node: Any, name: str = "") -> list[tuple[str, Any]]:
    if not isinstance(node, dict):
        return [(name, node)]
    return [leaf for key, value in node.items() for leaf in _leaves(value, f"{name}.{key}" if name else key)]


def _get(node: Any, name: str) -> Any:
    """The value of the dotted `name`, `...` where there is none."""
    for part in name.split("."):
        node = node.get(part, ...) if isinstance(node, dict) else ...
    return node
