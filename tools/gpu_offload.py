"""The part of `gpu_check` in which an optimizer's state leaves for the host and comes back."""

from __future__ import annotations

from typing import Any

import torch
from gpu_parts import Result, synchronized_seconds
from megatron.core.optimizer import MegatronOptimizer

from flexfloor import device
from flexfloor.train.optimizer_on_host import OptimizerOnHost
from flexfloor.train.optimizer_state import torch_optimizers

FREED_SHARE = 0.99
"""Of the state's bytes, that the allocator must have back; it counts in blocks."""


def offload(optimizer: MegatronOptimizer, ddp: Any) -> Result:
    """Send the state of an optimizer that has stepped away and fetch it again, twice.

    The first time the memory on the host is made, the second one is timed.
    """
    on_host, before, first = OptimizerOnHost(optimizer, ddp), _sums(optimizer), _allocated()
    on_host.leave()
    synchronized_seconds()
    freed = first - _allocated()
    with on_host.here():
        on_host.ready()
        same = _sums(optimizer) == before
    began = synchronized_seconds()
    with on_host.here():
        arrived = synchronized_seconds()
    left = synchronized_seconds()
    with on_host.here():
        on_host.ready()
        same = same and _sums(optimizer) == before
        num_bytes = on_host.num_bytes
    is_freed = device.is_cpu_host() or freed >= FREED_SHARE * num_bytes
    figures = {
        "state_GiB": round(num_bytes / 2**30, 2),
        "freed_GiB": round(freed / 2**30, 2),
        "to_the_device_GB/s": num_bytes / 1e9 / (arrived - began),
        "to_the_host_GB/s": num_bytes / 1e9 / (left - arrived),
    }
    return "optimizer on the host", same and is_freed, figures


def _sums(optimizer: MegatronOptimizer) -> list[float]:
    """Of each tensor of the state and each weight that is updated."""
    return [
        tensor.detach().double().sum().item()
        for part in torch_optimizers(optimizer)
        for group in part.param_groups
        for weight in group["params"]
        for tensor in (weight, *part.state[weight].values())
        if isinstance(tensor, torch.Tensor)
    ]


def _allocated() -> int:
    return 0 if device.is_cpu_host() else torch.cuda.memory_allocated()
