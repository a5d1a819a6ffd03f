"""Host views for `megatron.core.optimizer`: loss scales and buffers that upstream makes on CUDA."""

from __future__ import annotations

from megatron_patches.host_torch import host_view

PATCHES = (
    host_view(
        "megatron.core.optimizer.optimizer",
        why="the float32 optimizer makes its loss scale with device='cuda'",
        upstream_sha={"0.16.1": "32e7cfd874c7", "0.19.2": "24609822f7c1"},
    ),
)
