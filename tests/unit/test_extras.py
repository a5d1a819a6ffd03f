"""What `pip install flexfloor[...]` brings, and what it must not."""

import tomllib
from pathlib import Path

from packaging.requirements import Requirement

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
EXTRAS = {
    name: [Requirement(line) for line in lines] for name, lines in PROJECT["optional-dependencies"].items()
}
ALWAYS = [Requirement(line) for line in PROJECT["dependencies"]]


def test_there_are_extras_for_cpus_gpus_tests_and_development():
    assert EXTRAS.keys() == {"cpu", "gpu", "test", "dev"}


def test_transformer_engine_is_in_the_gpu_extra_only_in_the_spelling_that_pip_keeps():
    [engine] = EXTRAS["gpu"]
    assert engine.name == "transformer-engine" and engine.extras == {"core-cu13", "pytorch"}
    others = [*ALWAYS, *EXTRAS["cpu"], *EXTRAS["test"], *EXTRAS["dev"]]
    assert "transformer-engine" not in {need.name for need in others}


def test_the_package_that_pypi_calls_apex_is_nowhere():
    assert "apex" not in {need.name for needs in (ALWAYS, *EXTRAS.values()) for need in needs}
