"""Memory that runs out becomes an error that says what to lower; other errors stay as they are."""

from __future__ import annotations

import errno
import subprocess
import sys

import pytest
import torch

from flexfloor import device
from flexfloor.config import Config, compose
from flexfloor.errors import OutOfMemoryError
from flexfloor.stages.memory import advice, explaining_shortage


@pytest.fixture(scope="module")
def config() -> Config:
    """Settings with values that no default has."""
    return compose(["recipe=tiny-mixtral", "actor.micro_batch_tokens=321", "rollout.max_live_sequences=7"])


def test_a_real_allocation_that_fails_names_the_settings_of_its_stage(config: Config) -> None:
    with (
        pytest.raises(
            OutOfMemoryError, match=r"^out of memory in stage update: lower actor.micro_batch_tokens = 321 "
        ) as raised,
        explaining_shortage("update", config),
    ):
        torch.empty(2**55)
    assert isinstance(raised.value.__cause__, RuntimeError) and "allocate" in str(raised.value)


def test_a_limit_of_the_system_is_met_the_same_way(config: Config) -> None:
    """NumPy and Python say it in ways of their own."""
    code = """
import resource, numpy, torch
from flexfloor import device
limit = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 + 2**36
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
found = []
for allocate in (lambda: bytearray(2**37), lambda: numpy.ones(2**35), lambda: torch.ones(2**35)):
    try:
        allocate()
    except Exception as error:
        found.append(device.is_out_of_memory(error))
print(found)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "[True, True, True]", done.stderr


@pytest.mark.parametrize(
    ("error", "is_one"),
    [
        (torch.OutOfMemoryError("device out of memory. Tried to allocate 2 GiB"), True),
        (MemoryError(), True),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), True),
        (OSError(errno.ENOSPC, "No space left on device"), False),
        (RuntimeError("shape '[2]' is invalid"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_only_memory_that_ran_out_is_taken_for_it(error: Exception, is_one: bool, config: Config) -> None:
    assert device.is_out_of_memory(error) == is_one
    with (
        pytest.raises(OutOfMemoryError if is_one else type(error)) as raised,
        explaining_shortage("sft", config),
    ):
        raise error
    assert (raised.value is error) != is_one


@pytest.mark.parametrize(
    ("stage", "words"),
    [
        ("rollout", "lower rollout.kv_budget_bytes = 268435456 or rollout.max_live_sequences = 7 or"),
        ("validation", "rollout.max_live_sequences = 7"),
        ("old_log_prob", "actor.micro_batch_tokens = 321"),
        ("ref", "actor.micro_batch_tokens = 321"),
        ("sft", "lower actor.micro_batch_tokens = 321"),
        (
            "set-up",
            "raise parallel.ep, so that each rank holds fewer experts (parallel.ep = 4), or lower model.",
        ),
        ("checkpoint", "raise parallel.ep"),
        ("", "raise parallel.ep"),
    ],
)
def test_the_advice_names_settings_with_their_values(stage: str, words: str, config: Config) -> None:
    assert words in advice(stage, config)


@pytest.mark.parametrize("stage", ["sft", "early_update", "update"])
def test_where_gradients_are_taken_recomputation_is_advised_until_it_is_on(
    stage: str, config: Config
) -> None:
    assert advice(stage, config).endswith(", or set actor.recompute = full (it is none)")
    recomputed = compose(["recipe=tiny-mixtral", "actor.recompute=full"])
    assert "actor.recompute" not in advice(stage, recomputed) + advice("ref", config)
