"""The products of many experts in one call: PyTorch's grouped matrix product, on weights where they lie.

The kernel takes the weights of a group of experts as one tensor [G, out, in]. Megatron's buffers hold the
parameters of neighbouring experts at even distances, so that such a tensor is a view of them; parameters
that lie anywhere else form groups of one.

Shapes: R rows in the order of experts, G experts of a group.

Invariants:
- The weights of a group are read where they lie, never copied.
- What the kernel does not take (float64, rows that do not begin at a multiple of 16 bytes) is computed
  expert by expert, with the same result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

ALIGNMENT = 16
"""Bytes of which the kernel wants every row to begin at a multiple."""
KERNEL_TYPES = (torch.bfloat16, torch.float16, torch.float32)


def grouped_product(rows_RI: Tensor, weights_GOI: Tensor, ends_G: Tensor) -> Tensor:
    """[R, O]: each row times the transposed weight of its group.

    Args:
        rows_RI: [R, I], the rows of group 0 first.
        weights_GOI: [G, O, I] or a transposed view of it.
        ends_G: [G] int32, the row behind each group's last one; rows behind the last end get anything.
    """
    if _kernel_takes(rows_RI, weights_GOI):
        return F.grouped_mm(rows_RI, weights_GOI.transpose(1, 2), offs=ends_G)
    out = rows_RI.new_empty(rows_RI.size(0), weights_GOI.size(1))
    for (start, end), weight in zip(pairwise([0, *ends_G.tolist()]), weights_GOI, strict=True):
        torch.mm(rows_RI[start:end], weight.T, out=out[start:end])
    return out


def outer_products(left_RO: Tensor, right_RI: Tensor, ends_G: Tensor) -> Tensor:
    """[G, O, I]: the sum over each group's rows of outer products; anything for a group without rows."""
    if _kernel_takes(right_RI, left_RO):
        return F.grouped_mm(left_RO.T, right_RI, offs=ends_G)
    out = left_RO.new_empty(ends_G.numel(), left_RO.size(1), right_RI.size(1))
    for (start, end), each in zip(pairwise([0, *ends_G.tolist()]), out, strict=True):
        torch.mm(left_RO[start:end].T, right_RI[start:end], out=each)
    return out


def _kernel_takes(*tensors: Tensor) -> bool:
    itemsize = tensors[0].element_size()
    strides = [stride for tensor in tensors for stride in tensor.stride() if stride != 1]
    begins = [tensor.data_ptr() for tensor in tensors]
    aligned = not any(each % ALIGNMENT for each in (*begins, *(stride * itemsize for stride in strides)))
    return aligned and tensors[0].dtype in KERNEL_TYPES


def even_groups(weights: Sequence[Tensor]) -> list[Tensor]:
    """Views [G, O, I] that together are `weights`, in order: as few as their places in memory allow."""
    groups: list[list[Tensor]] = []
    for weight in weights:
        if groups and _goes_on(groups[-1], weight):
            groups[-1].append(weight)
        else:
            groups.append([weight])
    return [_view(group) for group in groups]


def _goes_on(group: list[Tensor], weight: Tensor) -> bool:
    first, last = group[0], group[-1]
    is_like = weight.shape == first.shape and weight.dtype == first.dtype and weight.is_contiguous()
    is_near = weight.untyped_storage().data_ptr() == first.untyped_storage().data_ptr()
    distance = weight.data_ptr() - last.data_ptr()
    is_even = len(group) == 1 or distance == last.data_ptr() - group[-2].data_ptr()
    return is_like and is_near and is_even and distance >= weight.nbytes


def _view(group: list[Tensor]) -> Tensor:
    first = group[0].detach()
    if len(group) == 1:
        return first[None]
    distance = (group[1].data_ptr() - first.data_ptr()) // first.element_size()
    return first.as_strided((len(group), *first.shape), (distance, *first.stride()))


class _GroupedLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows_RI: Tensor, counts: Sequence[int], *weights: Tensor) -> Tensor:
        """[R, O] rows times the weights of their experts, which have `counts` rows each."""
        ctx.save_for_backward(rows_RI, *weights)
        ctx.counts = counts
        parts = [
            grouped_product(rows_RI[part], group, ends)
            for group, part, _, ends in _parts(even_groups(weights), counts, rows_RI)
            if part.start < part.stop
        ]
        return _joined(parts, rows_RI.new_empty(0, weights[0].size(0)))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Of the rows, none for the counts, and of each weight that had rows."""
        rows_RI, *weights = ctx.saved_tensors
        # The kernel wants rows of their own: sums hand down a gradient that repeats one number.
        gradient_RO = gradients[0].contiguous()
        of_rows: list[Tensor] = []
        of_weights: list[Tensor | None] = []
        for group, part, counts, ends in _parts(even_groups(weights), ctx.counts, rows_RI):
            if part.start == part.stop:
                of_weights += [None] * len(group)
                continue
            of_rows.append(grouped_product(gradient_RO[part], group.transpose(1, 2), ends))
            products = outer_products(gradient_RO[part], rows_RI[part], ends)
            of_weights += [each if count else None for each, count in zip(products, counts, strict=True)]
        return _joined(of_rows, rows_RI), None, *of_weights


def _joined(parts: Sequence[Tensor], of_none: Tensor) -> Tensor:
    """All rows of the parts; `of_none`, which has none, without any part."""
    if not parts:
        return torch.zeros_like(of_none)
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


def _parts(
    groups: Sequence[Tensor], counts: Sequence[int], rows: Tensor
) -> Iterator[tuple[Tensor, slice, Sequence[int], Tensor]]:
    """Of each group: its weights, where its rows are, how many each expert has, and their ends from there."""
    first = start = 0
    for group in groups:
        own = counts[first : first + len(group)]
        ends = torch.tensor(list(accumulate(own)), dtype=torch.int32, device=rows.device)
        yield group, slice(start, start + sum(own)), own, ends
        first, start = first + len(group), start + sum(own)


def grouped_linear(rows_RI: Tensor, counts: Sequence[int], weights: Sequence[Tensor]) -> Tensor:
    """[R, O]: each row times its expert's weight [O, I], with gradients for both.

    Args:
        rows_RI: [R, I] in the order of experts; R may be 0, and the result still hangs on the graph.
        counts: rows of each expert, which add up to R.
        weights: of each expert; one without rows gets no gradient.
    """
    assert sum(counts) == rows_RI.size(0) and len(counts) == len(weights), (counts, rows_RI.shape)
    return _GroupedLinear.apply(rows_RI.contiguous(), counts, *weights)
