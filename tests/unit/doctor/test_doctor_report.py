"""What the doctor says, and the status that it ends with."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from importlib import metadata

import pytest

import megatron_patches
from flexfloor import cli, device
from flexfloor.doctor.recipes import judge
from flexfloor.doctor.upstream import check_patches
from flexfloor.doctor.versions import check_versions

TARGET = "megatron.core.parallel_state:get_expert_model_parallel_group"


def test_a_healthy_host_is_ready(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor"]) == 0
    out = capsys.readouterr().out
    for name in ("torch", "megatron-core", "transformers", "wandb"):
        assert metadata.version(name) in out
    patches = megatron_patches.patches_for_host()
    for sha in (sha for patch in patches for sha in patch.upstream_sha.values()):
        assert sha in out
    for text in ("tiny-mixtral", device.backend(), "cores", "free memory", "GiB", "yes"):
        assert text in out
    assert out.endswith("ready\n") and "not ready" not in out


def test_a_changed_upstream_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    [patch] = [patch for patch in megatron_patches.EVERY_HOST if patch.target == TARGET]
    other = dataclasses.replace(patch, upstream_sha={"0.16.1": "0123456789ab"})
    monkeypatch.setattr(megatron_patches, "patches_for_host", lambda: (other,))
    assert cli.main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert f"not ready: {TARGET} is changed: the source in version 0.16.1 hashes to bb5022ff32db" in out


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("megatron.core.parallel_state:no_such_function", "changed: is gone in version"),
        ("megatron.core.no_such_module:function", "changed: No module named"),
    ],
)
def test_a_target_that_is_gone_counts_as_changed(target: str, reason: str) -> None:
    patch = dataclasses.replace(megatron_patches.EVERY_HOST[0], target=target)
    [finding] = check_patches((patch,))
    assert finding.state.startswith(reason)


def test_looking_at_patches_changes_nothing() -> None:
    held = megatron_patches.shut_down()
    from megatron.core import parallel_state

    pristine = parallel_state.get_expert_model_parallel_group
    assert all(finding.complaint is None for finding in check_patches())
    assert parallel_state.get_expert_model_parallel_group is pristine
    megatron_patches.start_up()
    assert all(finding.complaint is None for finding in check_patches()), "with the patches on as well"
    if not held:
        megatron_patches.shut_down()


def test_a_wrong_version_and_a_missing_package_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"torch": "1.0", "rich": None}
    needs = ["torch>=2.9", "rich", "numpy", "pytest; extra == 'test'"]
    find = metadata.version

    def version(name: str) -> str:
        if name in versions and versions[name] is None:
            raise metadata.PackageNotFoundError(name)
        return versions.get(name) or find(name)

    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setattr(metadata, "requires", lambda _: needs)
    states = {each.name: each.state for each in check_versions("pytest")}
    assert states["torch"] == "not supported" and states["rich"] == "missing"
    assert states["python"] == "ok" and not {"numpy", "pytest"} & set(states)


def test_a_checkout_that_is_not_installed_asks_for_nothing() -> None:
    findings = check_versions("no-such-distribution")
    assert {each.name for each in findings} == {"python", "torch", "megatron-core", "transformers", "wandb"}
    assert all(each.complaint is None for each in findings)


def test_without_torch_it_says_so_and_imports_none() -> None:
    code = """
import sys
from importlib import metadata
find = metadata.version
def version(name):
    if name == "torch":
        raise metadata.PackageNotFoundError(name)
    return find(name)
metadata.version, sys.modules["torch"] = version, None
from flexfloor.cli import main
sys.exit(main(["doctor"]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.endswith("not ready: torch is missing\n")


def test_settings_are_judged_in_place_of_the_recipes(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor", "recipe=tiny-mixtral", "model.hidden_size=65536"]) == 1
    out = capsys.readouterr().out
    assert "these settings" in out and out.endswith("not ready: nothing of this would run here\n")
    assert cli.main(["doctor", "recipe=tiny-mixtral"]) == 0


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        (["recipe=tiny-mixtrl"], "recipe = tiny-mixtrl: no such recipe"),
        (["recipe=tiny-mixtral", "tokenizer.path=./nope"], "tokenizer.path=./nope: no such folder"),
        (["recipe=tiny-mixtral", "model.family=mixtrall"], "model.family"),
    ],
)
def test_what_would_stop_a_run_is_told(overrides: list[str], reason: str) -> None:
    assert reason in str(judge("this", overrides).complaint)


def test_memory_is_compared_with_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "is_cpu_host", lambda: True)
    needed = judge("this", ["recipe=tiny-mixtral"]).needed_bytes
    assert needed
    for free, runs in ((needed, True), (needed - 1, False)):
        monkeypatch.setattr(device, "free_memory_bytes", lambda free=free: free)
        assert (judge("this", ["recipe=tiny-mixtral"]).complaint is None) == runs


def test_each_rank_needs_an_accelerator_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "is_cpu_host", lambda: False)
    monkeypatch.setattr(device, "free_memory_bytes", lambda: 2**40)
    for devices, complaint in ((3, "4 ranks, and 3 accelerators"), (4, None)):
        monkeypatch.setattr(device, "num_accelerators", lambda devices=devices: devices)
        assert judge("this", ["recipe=tiny-mixtral"]).complaint == complaint
