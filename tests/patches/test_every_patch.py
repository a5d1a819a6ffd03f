"""Each patch is needed, is enough, and comes off without a trace."""

from __future__ import annotations

import importlib
import re
import traceback
from typing import Any

import pytest
from probes import PROBES

import megatron_patches
from flexfloor import device
from flexfloor.launch import run_ranks
from megatron_patches import Patch

pytestmark = pytest.mark.skipif(
    not device.is_cpu_host(), reason="the patches under test are those of a CPU host"
)

LISTS = (megatron_patches.EVERY_HOST, megatron_patches.WITHOUT_TE, megatron_patches.CPU_HOST)
ALL = {patch.target: patch for patches in LISTS for patch in patches}
HERE = {patch.target: patch for patch in megatron_patches.patches_for_host()}
"""What the installed Megatron-Core needs."""


def held(patch: Patch) -> Any:
    """What upstream holds at the patch's target now."""
    owner: Any = importlib.import_module(patch.module)
    *parents, name = patch.target.partition(":")[2].split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    return vars(owner).get(name, "nothing")


def try_without_and_with(target: str) -> tuple[str, str, bool]:
    """What the patch's probe says without the patch and with it, and whether undoing restored upstream."""
    megatron_patches.shut_down()
    pristine = held(HERE[target])
    with megatron_patches.applied(patch for patch in HERE.values() if patch.target != target):
        without = _outcome(target)
    with megatron_patches.applied(HERE.values()):
        assert held(HERE[target]) is not pristine
        patched = _outcome(target)
    return without, patched, held(HERE[target]) is pristine


def _outcome(target: str) -> str:
    try:
        PROBES[target].use()
    except Exception:  # noqa: BLE001  whatever upstream raises is the outcome
        return traceback.format_exc()
    return "behaves"


def test_every_patch_has_a_probe() -> None:
    assert set(PROBES) == set(ALL)


@pytest.mark.parametrize("target", HERE)
def test_patch_is_needed_enough_and_reversible(target: str) -> None:
    outcomes = run_ranks(try_without_and_with, 2, target, threads_per_rank=1, total_timeout_seconds=60)
    for without, patched, restored in outcomes:
        assert re.search(PROBES[target].without, without), f"without the patch: {without}"
        assert patched == "behaves"
        assert restored
