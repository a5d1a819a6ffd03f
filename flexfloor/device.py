"""The one place that knows CPU from CUDA and gloo from NCCL.

On a machine without an accelerator every rank computes on the CPU and talks over gloo; with one,
each rank owns the CUDA device of its local rank and talks over NCCL. Nothing else in the package
names a device or a backend.
"""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

MEMORY_MARGIN = 0.05
"""Share of a GPU's memory left for what no tensor accounts for: communicators that are made on first use,
workspaces of libraries, and gaps between the allocator's blocks."""


def is_cpu_host() -> bool:
    """Whether ranks on this machine compute on the CPU (no CUDA device is usable)."""
    return not torch.cuda.is_available()


def backend() -> str:
    """Name of the `torch.distributed` backend that fits this machine's devices."""
    return "gloo" if is_cpu_host() else "nccl"


def current_device() -> torch.device:
    """The device that this rank computes on."""
    return torch.device("cpu") if is_cpu_host() else torch.device("cuda", torch.cuda.current_device())


def num_accelerators() -> int:
    """Accelerators that ranks of this machine can own; 0 on a CPU host."""
    return 0 if is_cpu_host() else torch.cuda.device_count()


def describe() -> str:
    """What ranks of this machine compute on, in words."""
    names = [torch.cuda.get_device_name(index) for index in range(num_accelerators())]
    return ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names)) or "CPU"


def free_memory_bytes() -> int:
    """Memory that a run can still take: of the whole host on a CPU, of the fullest device on a GPU."""
    if is_cpu_host():
        # Read here: a GPU machine may have no more than PyTorch and Megatron-Core (`tools/gpu_check.py`).
        import psutil

        return psutil.virtual_memory().available
    return min(torch.cuda.mem_get_info(index)[0] for index in range(num_accelerators()))


def rank_memory_bytes() -> int | None:
    """What this rank may hold on its GPU: what is free and what it has, less a margin; None on a CPU."""
    if is_cpu_host():
        return None
    free, total = torch.cuda.mem_get_info()
    return max(1, free + torch.cuda.memory_reserved() - int(total * MEMORY_MARGIN))


def has_grouped_products() -> bool:
    """Whether this rank's device has a kernel for the products of many experts at once."""
    return not is_cpu_host() and torch.cuda.get_device_capability() >= (8, 0)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether `error` says that the memory of the host or of the device ran out."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    text = str(error).lower()
    return isinstance(error, RuntimeError) and ("can't allocate memory" in text or "out of memory" in text)


def claim_device(local_rank: int) -> torch.device:
    """Make the device of `local_rank` this process's current one and return it."""
    if not is_cpu_host():
        torch.cuda.set_device(local_rank % torch.cuda.device_count())
    return current_device()


def peak_memory_bytes() -> int:
    """Peak of what this rank has held: device memory on a GPU, resident set of the process on a CPU."""
    if not is_cpu_host():
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def random_state() -> torch.Tensor | None:
    """State of the device's own generator; None on a CPU, whose generator is Torch's default one."""
    return None if is_cpu_host() else torch.cuda.get_rng_state()


def set_random_state(state: torch.Tensor) -> None:
    """Restore the device's own generator; a CPU has none, so that a GPU's state is left aside there."""
    if not is_cpu_host():
        torch.cuda.set_rng_state(state)


def default_threads(ranks_on_host: int) -> int:
    """CPU threads for one rank so that all ranks of this host together use its cores once."""
    cores = len(os.sched_getaffinity(0))
    return max(1, cores // max(1, ranks_on_host))


def host_memory(num_bytes: int) -> torch.Tensor:
    """Bytes on the host that a GPU copies to and from while it computes."""
    return torch.empty(num_bytes, dtype=torch.uint8, pin_memory=not is_cpu_host())


class SideStream:
    """What a GPU does beside its own work, in order; on a CPU it is done at once."""

    def __init__(self) -> None:
        self._stream = None if is_cpu_host() else torch.cuda.Stream()

    @contextmanager
    def beside(self, tensors: Sequence[torch.Tensor] = ()) -> Iterator[None]:
        """What the block asks for begins when the device has done all that it was asked for before.

        Args:
            tensors: the device's, that the block reads; given back after it, they last until they are read.
        """
        if self._stream is None:
            yield
            return
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            yield
        for tensor in tensors:
            tensor.record_stream(self._stream)

    def catch_up(self) -> None:
        """What the device is asked for from here on begins when this stream is done; returns at once."""
        if self._stream is not None:
            torch.cuda.current_stream().wait_stream(self._stream)
