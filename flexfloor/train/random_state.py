"""The states of all generators that code on a rank may draw from, as plain data.

Sampling does not need them (its noise is a function of seed, prompt, response and position), but dropout,
a task's generator or a user's reward function may.

Invariants:
- Two runs of one seed and layout draw the same numbers.
- After `restore(capture())` each generator draws the same numbers again.
"""

from __future__ import annotations

import random
import zlib
from typing import Any

import numpy as np
import torch
from megatron.core.tensor_parallel.random import get_cuda_rng_tracker

from flexfloor import device


def seed(value: int, rank: int) -> None:
    """Seed Python's and NumPy's generators, each rank's apart; Torch's and Megatron's have seeds already."""
    random.seed(f"{value}/{rank}")
    np.random.seed(zlib.crc32(f"{value}/{rank}".encode()))


def capture() -> dict[str, Any]:
    """States of Python's, NumPy's, Torch's and Megatron's named generators."""
    version, words, gauss = random.getstate()
    kind, keys, position, has_gauss, cached = np.random.get_state()
    device_state = device.random_state()
    return {
        "python": {"version": version, "words": np.array(words, dtype=np.uint64), "gauss": gauss},
        "numpy": [kind, keys, position, has_gauss, cached],
        "torch": torch.get_rng_state().numpy(),
        "device": None if device_state is None else device_state.numpy(),
        "named": {name: state.numpy() for name, state in get_cuda_rng_tracker().get_states().items()},
    }


def restore(states: dict[str, Any]) -> None:
    """Put all generators where `capture` found them."""
    python = states["python"]
    random.setstate((python["version"], tuple(int(word) for word in python["words"]), python["gauss"]))
    np.random.set_state(tuple(states["numpy"]))
    torch.set_rng_state(torch.from_numpy(states["torch"]))
    if states["device"] is not None:
        device.set_random_state(torch.from_numpy(states["device"]))
    named = {name: torch.from_numpy(state) for name, state in states["named"].items()}
    get_cuda_rng_tracker().set_states(named)
