"""Split sizes of `megatron.core.tensor_parallel.mappings` as the integers that collectives take."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from megatron_patches.patch import Patch


def _integers(splits: Any) -> Any:
    return splits.tolist() if hasattr(splits, "tolist") else splits


def _take_integer_splits(forward: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    @functools.wraps(forward)
    def forward_integers(
        ctx: Any, group: Any, input: torch.Tensor, output_splits: Any, input_splits: Any, *further: Any
    ) -> torch.Tensor:
        return forward(ctx, group, input, _integers(output_splits), _integers(input_splits), *further)

    return forward_integers


PATCHES = (
    Patch(
        target="megatron.core.tensor_parallel.mappings:_AllToAll.forward",
        why="the dispatcher turns split sizes into integers on the way from CUDA to the CPU only, "
        "so on the CPU tensors reach all_to_all_single, which refuses them",
        remove_when="the dispatcher hands on integers on every device",
        wrap=_take_integer_splits,
        upstream_sha={"0.16.1": "a4e3e4984091", "0.19.2": "f36b0fef6519"},
    ),
)
