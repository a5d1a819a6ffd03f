"""Matrix products with weights laid out the way this device multiplies few rows fastest.

On a CPU in float32, and in bfloat16 where the processor knows it, that is oneDNN's blocked layout, a copy
made when a rollout begins (weights do not change during one); about twice as fast as the plain product for
the 1 to 64 rows of a decode step.
Elsewhere the parameter itself is used, without a copy.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from flexfloor.rollout.kernels.plain import Linear

ROWS_HINT = 64
"""Rows that the blocked layout is made for: the one that was fastest or near it from 1 to 64 rows."""


def pack(weight: Tensor) -> Linear:
    """The product with `weight` [out, in], in the fastest layout for this device and type."""
    if not _blocks(weight):
        return lambda rows: F.linear(rows, weight)
    packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), ROWS_HINT)
    return lambda rows: torch.ops.mkldnn._linear_pointwise(rows, packed, None, "none", [], "")


def packed_bytes(weight: Tensor) -> int:
    """Bytes that `pack` takes beside `weight`."""
    return weight.nbytes if _blocks(weight) else 0


def _blocks(weight: Tensor) -> bool:
    return bool(
        weight.device.type == "cpu"
        and _is_known(weight.dtype)
        and torch.backends.mkldnn.is_available()
        and torch.backends.mkldnn.enabled
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )


def _is_known(dtype: torch.dtype) -> bool:
    if dtype is torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return dtype is torch.float32
