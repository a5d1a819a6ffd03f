"""Random-number states of `megatron.core.tensor_parallel.random`, kept in the CPU's generator."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from megatron_patches.host_torch import HostTorch
from megatron_patches.patch import Kind, Patch

_MODULE = "megatron.core.tensor_parallel.random"


def _get_rng_state(device: Any = None) -> torch.Tensor:
    return torch.get_rng_state()


def _set_rng_state(new_state: torch.Tensor, device: int = -1, graph_safe: bool = False) -> None:
    torch.set_rng_state(new_state)


def _host_view(_: Any) -> HostTorch:
    generator = SimpleNamespace(get_rng_state=_get_rng_state, manual_seed=torch.default_generator.manual_seed)
    return HostTorch({"cuda": SimpleNamespace(random=generator, **vars(generator))})


PATCHES = (
    Patch(
        target=f"{_MODULE}:torch",
        why="seeding and forking the named random states read and seed the CUDA generator",
        remove_when="upstream's tracker takes the generator of the device that it draws on",
        wrap=_host_view,
        upstream_sha={"0.16.1": "defb7ca448d5", "0.19.2": "c2bc8b53e27f"},
        kind=Kind.REPLACEMENT,
    ),
    Patch(
        target=f"{_MODULE}:_set_cuda_rng_state",
        why="setting a state is queued until CUDA starts, which it never does, so forks would not take hold",
        remove_when="upstream's tracker takes the generator of the device that it draws on",
        wrap=lambda _: _set_rng_state,
        upstream_sha={"0.16.1": "b179c9d95438", "0.19.2": "b179c9d95438"},
        kind=Kind.REPLACEMENT,
    ),
)
