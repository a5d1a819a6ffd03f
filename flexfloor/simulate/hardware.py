"""GPUs and the links between them, as published; what is an assumption says so.

Invariants:
- A preset's all-to-all, at the shape that DeepEP was measured with, is within 15 % of what was measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """One GPU of a cluster of like GPUs, all numbers as the data sheet has them unless said otherwise."""

    name: str
    memory_bytes: float
    """HBM capacity."""
    memory_bytes_per_second: float
    """HBM bandwidth."""
    flops_per_second: float
    """bfloat16 tensor cores, dense."""
    node_link_bytes_per_second: float
    """One way out of a GPU to those of its node, as seen by collectives."""
    net_link_bytes_per_second: float
    """One way out of a GPU to other nodes."""
    gpus_per_node: int = 8
    memory_share: float = 0.8
    """Of the bandwidth that a decode step reaches. Assumption: "plan with 80 %"."""
    decode_flops_share: float = 0.5
    """Of the peak that forward passes reach where they are bound by it. Assumption."""
    train_flops_share: float = 0.35
    """Of the peak that forward and backward reach, recomputed passes among them. Assumption."""
    node_latency_seconds: float = 35e-6
    """An all-to-all of next to nothing within a node. Fitted to DeepEP's table at EP 8."""
    net_latency_seconds: float = 50e-6
    """... between nodes. Fitted to DeepEP's table at EP 16 to 256."""
    layer_seconds: float = 60e-6
    """Least time of a layer, however little it does: about 25 kernels in a captured graph. Assumption."""
    switch_seconds: float = 0.05
    """A shrink beside what it copies: decision, new group and placement, new captured graph. Assumption."""

    def __post_init__(self) -> None:
        for name in ("memory_share", "decode_flops_share", "train_flops_share"):
            assert 0 < getattr(self, name) <= 1, (name, getattr(self, name))


def _h100() -> Hardware:
    """NVIDIA H100 SXM data sheet: 80 GB, 3.35 TB/s, 989 TFLOP/s; NVLink 4 450 GB/s a way, of which NCCL
    reaches about 380; ConnectX-7, 400 Gb/s."""
    return Hardware(
        name="h100",
        memory_bytes=80e9,
        memory_bytes_per_second=3.35e12,
        flops_per_second=989e12,
        node_link_bytes_per_second=380e9,
        net_link_bytes_per_second=50e9,
    )


def _h200() -> Hardware:
    """NVIDIA H200 SXM data sheet: an H100 with 141 GB at 4.8 TB/s."""
    return Hardware(
        name="h200",
        memory_bytes=141e9,
        memory_bytes_per_second=4.8e12,
        flops_per_second=989e12,
        node_link_bytes_per_second=380e9,
        net_link_bytes_per_second=50e9,
    )


def _h800() -> Hardware:
    """An H100 with NVLink cut to about 160 GB/s a way, as DeepEP's documentation gives it."""
    return Hardware(
        name="h800",
        memory_bytes=80e9,
        memory_bytes_per_second=3.35e12,
        flops_per_second=989e12,
        node_link_bytes_per_second=160e9,
        net_link_bytes_per_second=50e9,
    )


HARDWARE: Mapping[str, Hardware] = MappingProxyType({each.name: each for each in (_h100(), _h200(), _h800())})
"""By the name that `simulate.hardware` takes."""
