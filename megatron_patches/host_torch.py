"""`torch` as an upstream module should see it on a host without CUDA.

Upstream writes `device="cuda"` in tensor factories. Rather than changing `torch` for everybody, a patch
puts a `HostTorch` in place of the name `torch` in the one module that holds such literals.

Invariants:
- A factory call that names a CUDA device lands on the CPU; any other call is torch's own.
- Everything else that the module reads from `torch` is the very object that torch holds.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch

from megatron_patches.patch import Kind, Patch

_FACTORIES = ("empty", "full", "ones", "tensor", "zeros")


class HostTorch:
    """A view of `torch` whose factories stay on the CPU, with `overrides` for further names."""

    def __init__(self, overrides: Mapping[str, Any] | None = None) -> None:
        for name in _FACTORIES:
            setattr(self, name, _on_host(getattr(torch, name)))
        for name, value in (overrides or {}).items():
            setattr(self, name, value)

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


def host_view(module: str, *, why: str, upstream_sha: Mapping[str, str]) -> Patch:
    """The patch that makes `module` see `HostTorch`; the hash is that of the module's whole source."""
    return Patch(
        target=f"{module}:torch",
        why=why,
        remove_when="upstream takes the device from the tensors or the group it works on",
        wrap=lambda _: HostTorch(),
        upstream_sha=upstream_sha,
        kind=Kind.REPLACEMENT,
    )


def _on_host(factory: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    @functools.wraps(factory)
    def on_host(*args: Any, device: Any = None, **kwargs: Any) -> torch.Tensor:
        asks_for_cuda = device is not None and torch.device(device).type == "cuda"
        return factory(*args, device="cpu" if asks_for_cuda else device, **kwargs)

    return on_host
