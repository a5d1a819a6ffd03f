"""Merges of loaded parts that upstream makes anew, skipped where the parts have been loaded into the whole.

A gated layer's weights and their moments are stored in two halves. Upstream describes them as views of the
tensor that it holds, fills those, and joins them in a new tensor of the same content.

Invariants:
- The result of a merge is what upstream's would be; of views it is the tensor that they are views of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from megatron.core.dist_checkpointing.dict_utils import nested_values
from megatron.core.dist_checkpointing.mapping import ShardedTensorFactory


def spare_merges(wanted: dict[str, Any]) -> None:
    """Have no part of `wanted` merged that is loaded in place."""
    for each in nested_values(wanted):
        if isinstance(each, ShardedTensorFactory):
            each.merge_fn = _unless_in_place(each.data, each.merge_fn)


def _unless_in_place(whole: torch.Tensor, merge: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def merged(parts: Any) -> Any:
        return whole.detach() if _is_tiled(whole, parts) else merge(parts)

    return merged


def _is_tiled(whole: torch.Tensor, parts: Any) -> bool:
    """Whether `parts` lie one after another where `whole` lies."""
    if not isinstance(parts, list) or not whole.is_contiguous():
        return False
    start = whole.data_ptr()
    for part in parts:
        if part.data_ptr() != start or part.dtype != whole.dtype or not part.is_contiguous():
            return False
        start += part.nbytes
    return start == whole.data_ptr() + whole.nbytes
