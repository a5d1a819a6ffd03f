"""Gradient norm and clipping of `megatron.core.optimizer.clip_grads` on a host without CUDA.

Invariants:
- Norm and clipping work in the gradients' own precision: float64 gradients get a float64 norm.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from megatron_patches.host_torch import host_view
from megatron_patches.patch import Kind, Patch


@dataclass(frozen=True, slots=True)
class _CudaTyped:
    """A gradient that answers to the type name upstream asserts, and detaches to the real one."""

    grad: torch.Tensor

    def type(self) -> str:
        return "torch.cuda.FloatTensor"

    def detach(self) -> torch.Tensor:
        return self.grad.detach()


@dataclass(frozen=True, slots=True)
class _CudaTypedParameter:
    grad: _CudaTyped | None


def _accept_host_gradients(clip: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(clip)
    def clip_host_gradients(
        parameters: Iterable[torch.Tensor] | torch.Tensor,
        max_norm: float,
        total_norm: float,
        use_decoupled_grad: bool = False,
    ) -> None:
        assert not use_decoupled_grad, "decoupled gradients belong to the distributed optimizer on GPUs"
        if isinstance(parameters, torch.Tensor):
            parameters = [parameters]
        typed = [_CudaTypedParameter(None if p.grad is None else _CudaTyped(p.grad)) for p in parameters]
        clip(typed, max_norm, total_norm)

    return clip_host_gradients


def _l2_norm(
    chunk_size: int, noop_flag: Any, tensor_lists: list[list[torch.Tensor]], per_tensor: bool, *args: Any
) -> tuple[torch.Tensor, None]:
    norms = [torch.linalg.vector_norm(tensor) for tensors in tensor_lists for tensor in tensors]
    return torch.linalg.vector_norm(torch.stack(norms)).reshape(1), None


PATCHES = (
    host_view(
        "megatron.core.optimizer.clip_grads",
        why="the norm's buffers are made with device='cuda'",
        upstream_sha={"0.16.1": "4a68e9aae8cb", "0.19.2": "9884205e23f0"},
    ),
    Patch(
        target="megatron.core.optimizer.clip_grads:clip_grad_by_total_norm_fp32",
        why="asserts that each gradient's type name is 'torch.cuda.FloatTensor'",
        remove_when="upstream checks the dtype instead of the type's name",
        wrap=_accept_host_gradients,
        upstream_sha={"0.16.1": "8edb9da53650", "0.19.2": "cf07b488fb76"},
    ),
    Patch(
        target="megatron.core.utils:local_multi_tensor_l2_norm",
        why="the fall-back norm is rounded to float32 and put on CUDA",
        remove_when="upstream's fall-back keeps dtype and device of the gradients",
        wrap=lambda _: _l2_norm,
        upstream_sha={"0.16.1": "01526c55444a", "0.19.2": "01526c55444a"},
        kind=Kind.REPLACEMENT,
    ),
)
