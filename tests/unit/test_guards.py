"""What must stay true of the source as a whole."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("flexfloor", "megatron_patches", "recipes", "conf")
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
DEVICE_WORDS = ("cuda", "nccl")
MAY_NAME_DEVICES = {"flexfloor/device.py"}
PURE = [
    "flexfloor.report.write",
    "flexfloor.schedule.admission",
    "flexfloor.schedule.config",
    "flexfloor.schedule.fitted_cost",
    "flexfloor.schedule.history_file",
    "flexfloor.schedule.plain_cost",
    "flexfloor.schedule.slots",
    "flexfloor.schedule.static",
    "flexfloor.train.advantage",
    "flexfloor.train.packing",
    "flexfloor.config",
    "flexfloor.simulate.run",
    "flexfloor.simulate.command",
]
HEAVY = ("torch", "megatron", "transformers", "wandb", "matplotlib", "reasoning_gym")


def name(path):
    return str(path.relative_to(ROOT))


def trees():
    return [(path, ast.parse(path.read_text())) for path in SOURCES]


def docstrings(tree):
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, kinds) and ast.get_docstring(node)
    }


def test_device_and_backend_names_stand_in_one_place():
    for path, tree in trees():
        if name(path) in MAY_NAME_DEVICES or path.is_relative_to(ROOT / "megatron_patches"):
            continue
        told = docstrings(tree)
        for node in ast.walk(tree):
            text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
            if isinstance(node, ast.Attribute):
                text = node.attr
            assert id(node) in told or text not in DEVICE_WORDS, f"{name(path)}:{node.lineno}: {text}"


def test_parallel_state_is_read_in_one_module():
    for path in SOURCES:
        if name(path) != "flexfloor/parallel.py" and not path.is_relative_to(ROOT / "megatron_patches"):
            assert "parallel_state" not in path.read_text(), name(path)


def test_upstream_is_changed_in_patches_only():
    for path, tree in trees():
        if path.is_relative_to(ROOT / "megatron_patches"):
            continue
        imported = {
            alias.asname or alias.name.partition(".")[0]
            for node in ast.walk(tree)
            if isinstance(node, ast.Import)
            for alias in node.names
            if alias.name.partition(".")[0] in ("torch", "megatron")
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign | ast.AugAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in targets:
                    root = target
                    while isinstance(root, ast.Attribute):
                        root = root.value
                    changed = isinstance(target, ast.Attribute) and isinstance(root, ast.Name)
                    assert not (changed and root.id in imported), f"{name(path)}:{node.lineno}"


NEED_A_TIME_OUT = ("new_group", "init_process_group", "TCPStore", "FileStore", "run", "check_output")
WAIT_UNTIL_TOLD = ("join", "wait", "get", "recv", "acquire", "communicate", "result")
MAY_WAIT = {
    ("flexfloor/launch/rank_process.py", "parent.join"): "a rank ends when its parent does",
    ("flexfloor/launch/rank_process.py", "pipe.recv"): "for the parent, whose end is the pipe's",
    ("flexfloor/launch/rank_watch.py", "started.pipe.recv"): "after poll has said that there is something",
    ("flexfloor/reward/pool.py", "self._jobs.get"): "a daemon thread for its next job",
    ("flexfloor/elastic/transfer.py", "work.wait"): "a send or receive has its group's time-out",
    ("flexfloor/launch/peer_watch.py", "self._ending.acquire"): "for the end of the process",
}


def waits_without_end(tree):
    """Calls that make a group or start a process without a time-out, or wait without one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            called, attribute = ast.unparse(node.func), node.func.attr
            outside = called.split(".")[0] in ("dist", "torch", "subprocess")
            timed = any(keyword.arg in ("timeout", None) for keyword in node.keywords)
            if outside and attribute in NEED_A_TIME_OUT and not timed:
                yield called
            if attribute in WAIT_UNTIL_TOLD and not node.args and not node.keywords:
                yield called


def test_nothing_waits_without_a_time_out():
    found = {(name(path), called) for path, tree in trees() for called in waits_without_end(tree)}
    assert found == set(MAY_WAIT)
    bad = "dist.new_group(ranks)\nsubprocess.run(words)\nworker.join()\nqueue.get()"
    assert len(list(waits_without_end(ast.parse(bad)))) == 4
    good = "dist.new_group(ranks, timeout=t)\n', '.join(words)\nqueue.get(timeout=1)\ntable.get('a')"
    assert not list(waits_without_end(ast.parse(good)))


@pytest.mark.parametrize("module", PURE)
def test_pure_modules_import_nothing_heavy(module):
    code = f"import sys, {module}; print([name for name in {HEAVY} if name in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"


def test_every_module_and_public_name_says_what_it_is():
    for path, tree in trees():
        assert ast.get_docstring(tree), f"{name(path)} has no docstring"
        for node in tree.body:
            public = isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_")
            assert not public or ast.get_docstring(node), f"{name(path)}: {node.name} has no docstring"


def test_files_hold_one_idea():
    for path in SOURCES:
        lines = len(path.read_text().splitlines())
        assert lines <= 260, f"{name(path)} has {lines} lines"
        assert path.stem not in ("utils", "misc", "helpers", "common"), name(path)


def test_every_package_is_in_the_wheel():
    listed = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    found = {".".join(path.parent.relative_to(ROOT).parts) for path in SOURCES if path.name == "__init__.py"}
    moved = {"recipes": "flexfloor.recipes", "conf": "flexfloor.conf"}
    assert listed == {moved.get(package, package) for package in found}
    for path in SOURCES:
        assert (path.parent / "__init__.py").exists(), f"{name(path)} lies outside of a package"
