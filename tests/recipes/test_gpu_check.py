"""`tools/gpu_check.py` on a CPU, with nothing but what a bare GPU machine has."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "tools" / "gpu_check.py"
THERE = {"torch", "megatron-core", "transformers"}
"""What the machine has; with what these bring along themselves."""
BROUGHT_ALONG = {"numpy", "packaging", "tokenizers", "triton", "safetensors"}
MODULES = {"hydra-core": "hydra", "reasoning-gym": "reasoning_gym"}
BLOCKER = """
import importlib.machinery

found = importlib.machinery.PathFinder.find_spec

def find_spec(name, path=None, target=None):
    return None if name.partition(".")[0] in {names!r} else found(name, path, target)

importlib.machinery.PathFinder.find_spec = find_spec
"""
"""Makes packages look as if they were not installed."""


def blocked():
    lines = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    names = {Requirement(line).name for line in lines} - THERE - BROUGHT_ALONG
    assert {"hydra-core", "rich", "wandb", "pyarrow", "psutil", "omegaconf"} <= names
    return {MODULES.get(name, name) for name in names}


def run(folder, *words, **environ):
    command = [sys.executable, str(TOOL), *words]
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=280, env=os.environ | environ, cwd=folder
    )
    return ended, json.loads(ended.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """One run without the other packages."""
    folder = tmp_path_factory.mktemp("bare")
    (folder / "sitecustomize.py").write_text(BLOCKER.format(names=blocked()))
    words = ("--device", "cpu", "--small", "--json", "found.json")
    ended, told = run(folder, *words, PYTHONPATH=str(folder), OMP_NUM_THREADS="1")
    return folder, ended, told


def test_all_of_it_is_right_on_a_cpu(bare):
    folder, ended, told = bare
    assert ended.returncode == 0 and told["ok"], ended.stdout + ended.stderr
    assert json.loads((folder / "found.json").read_text()) == told
    by_part = {
        part: [each for each in told["results"] if each["part"] == part]
        for part in ("machine", "references", "speed", "elastic")
    }
    assert [len(results) for results in by_part.values()] == [2, 9, 6, 2]
    assert all("finished" not in each for each in told["results"])
    assert all(each["same"] == "6 of 6" and each["shrinks"] > 0 for each in by_part["elastic"])


def test_speeds_stand_beside_two_rooflines_that_none_is_above(bare):
    generations = [each for each in bare[2]["results"] if each["name"].startswith("generation")]
    assert [each["name"] for each in generations] == ["generation, 1 at a time", "generation, 8 at a time"]
    for each in generations:
        bounds = each["bytes_roofline_tokens/s"], each["flops_roofline_tokens/s"]
        assert 0 < each["decode_tokens/s"] < min(bounds)
        assert each["path"] == "fast"


FAKE_PARTS = """
import json, os, pathlib, sys

file, parts = pathlib.Path(sys.argv[3]), sys.argv[4:]
for part in parts:
    lines = [{"part": part, "name": "figures", "ok": True, "figure": 3.0}, {"finished": part}]
    if part == "references":
        lines.pop()
    with file.open("a") as out:
        out.writelines(json.dumps(line) + "\\n" for line in lines)
    if part == "references":
        os._exit(7)
"""


def test_a_part_that_ends_its_process_is_told_and_the_others_run(tmp_path):
    (tmp_path / "gpu_parts.py").write_text(FAKE_PARTS)
    tool = tmp_path / "gpu_check.py"
    tool.write_text(TOOL.read_text())
    words = ("--parts", "machine", "references", "elastic")
    ended = subprocess.run([sys.executable, str(tool), *words], capture_output=True, text=True, timeout=60)
    told = json.loads(ended.stdout.splitlines()[-1])
    assert ended.returncode == 1 and not told["ok"]
    assert [(each["part"], each["name"], each["ok"]) for each in told["results"]] == [
        ("machine", "figures", True),
        ("references", "figures", True),
        ("references", "ended early", False),
        ("elastic", "figures", True),
    ]
    assert told["results"][2]["why"].startswith("status 7")


def test_asking_for_a_gpu_where_there_is_none_says_so(tmp_path):
    ended, told = run(tmp_path, "--device", "cuda", "--parts", "machine", CUDA_VISIBLE_DEVICES="")
    assert ended.returncode == 1
    assert "--device cpu --small" in told["results"][0]["why"]
