"""What `megatron.core.transformer.moe.moe_utils` takes for granted: CUDA and Transformer Engine."""

from __future__ import annotations

from megatron_patches.host_torch import host_view
from megatron_patches.patch import Kind, Patch

_MODULE = "megatron.core.transformer.moe.moe_utils"

WITHOUT_TE = (
    Patch(
        target=f"{_MODULE}:te_general_gemm",
        why="a router with its own dtype asks whether te_general_gemm is None, "
        "and the name is undefined without Transformer Engine",
        remove_when="upstream defines the name when Transformer Engine is absent",
        wrap=lambda _: None,
        upstream_sha={"0.16.1": "d73a6eb85350"},
        kind=Kind.DEFINITION,
    ),
)

PATCHES = (
    host_view(
        _MODULE,
        why="the tracker of auxiliary losses makes its sums with device='cuda'",
        upstream_sha={"0.16.1": "d73a6eb85350"},
    ),
)
