"""Start-up applies this host's list once, in silence, and can be taken back."""

from __future__ import annotations

import logging
import subprocess
import sys
import warnings
from collections.abc import Iterator

import pytest

import megatron_patches
from megatron_patches import host, quiet
from megatron_patches.patch import patches_for_version, upstream_version

IMPORT_AND_BUILD = """
import megatron_patches
megatron_patches.start_up()
import megatron.core.models.gpt.gpt_layer_specs
import megatron.core.optimizer
import megatron.core.distributed
from megatron.core.transformer.transformer_config import TransformerConfig
TransformerConfig(num_layers=1, hidden_size=8, num_attention_heads=1)
"""


@pytest.fixture(autouse=True)
def unpatched() -> Iterator[None]:
    """Each test starts from upstream as it is, and leaves it as it was found."""
    held = megatron_patches.shut_down()
    yield
    megatron_patches.shut_down()
    if held:
        megatron_patches.start_up()


def test_applies_the_named_list_once() -> None:
    from megatron.core import parallel_state

    pristine = parallel_state.get_expert_model_parallel_group
    targets = megatron_patches.start_up()
    patched = parallel_state.get_expert_model_parallel_group
    assert targets == [patch.target for patch in megatron_patches.patches_for_host()]
    assert megatron_patches.start_up() == targets
    assert parallel_state.get_expert_model_parallel_group is patched is not pristine
    assert megatron_patches.shut_down()
    assert parallel_state.get_expert_model_parallel_group is pristine
    assert not megatron_patches.shut_down()


@pytest.mark.parametrize("is_installed", [True, False])
@pytest.mark.parametrize("has_gpu", [True, False])
def test_the_list_is_that_of_the_device_and_of_what_is_installed(
    monkeypatch: pytest.MonkeyPatch, has_gpu: bool, is_installed: bool
) -> None:
    monkeypatch.setattr(host.device, "is_cpu_host", lambda: not has_gpu)
    monkeypatch.setattr(host.importlib.util, "find_spec", lambda _: object() if is_installed else None)
    held = {patch.target for patch in megatron_patches.patches_for_host()}
    lists = [
        (megatron_patches.EVERY_HOST, True),
        (megatron_patches.WITHOUT_TE, not is_installed),
        (megatron_patches.CPU_HOST, not has_gpu),
    ]
    every = [patch for patches, _ in lists for patch in patches]
    needed = {patch.target for patch in patches_for_version(every, upstream_version("megatron.core"))}
    for patches, is_wanted in lists:
        here = needed & {patch.target for patch in patches}
        assert here <= held if is_wanted else not here & held


def test_console_stays_clean() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", IMPORT_AND_BUILD], capture_output=True, text=True, timeout=120
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


@pytest.mark.parametrize(("category", "module", "message"), quiet.EXPECTED_WARNINGS)
def test_other_warnings_of_the_same_module_still_show(category: type, module: str, message: str) -> None:
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        quiet.silence_expected()
        for text in (message, message + " And more.", "Another message"):
            warnings.warn_explicit(text, category, "file.py", 1, module=module)
        warnings.warn_explicit(message, category, "file.py", 1, module="elsewhere")
    assert [str(warning.message) for warning in shown] == [message + " And more.", "Another message", message]


@pytest.mark.parametrize(("name", "message"), quiet.EXPECTED_LOGS)
def test_other_log_lines_still_show(name: str, message: str, caplog: pytest.LogCaptureFixture) -> None:
    quiet.silence_expected()
    for text in (message, "Another message"):
        logging.getLogger(name).warning(text)
    assert [record.message for record in caplog.records] == ["Another message"]
