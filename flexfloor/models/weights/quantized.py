"""Weights in FP8 with one scale a block, as DeepSeek-V3 is released: each tensor beside a grid of scales.

A weight [..., rows, columns] of E4M3 has scales [..., ceil(rows / R), ceil(columns / C)] for blocks of R by
C; blocks at the lower and the right border may be cut. What is meant is the product, taken in float32.

Invariants:
- Scales are no tensors of the model: of a folder that was paired, each belongs to its weight.

Source: DeepSeek-AI, DeepSeek-V3, README_WEIGHTS.md (names, shapes, "dequantization").
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields

from flexfloor.models.weights.fusion import Shape
from flexfloor.models.weights.stored import FP8, StoredTensor

Block = tuple[int, int]
"""Rows and columns that share a scale."""
SCALE_SUFFIX = "_scale_inv"
SCALE_DTYPES = ("F32", "BF16")
"""Types of scales; float32 holds each exactly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizedTensor(StoredTensor):
    """A tensor in FP8 with its scales."""

    scales: StoredTensor
    block: Block

    def scale_row(self, row: int) -> int:
        """The row of `scales` that holds for `row`, dimensions before the last flattened in both."""
        matrix, inside = divmod(row, self.shape[-2])
        return matrix * self.scales.shape[-2] + inside // self.block[0]

    def runs(self, first_row: int, num_rows: int, at_once: int) -> Iterator[tuple[int, int]]:
        """Rows from `first_row` on in groups of at most `at_once` that share a row of scales: that row, and
        how many they are."""
        row, end = first_row, first_row + num_rows
        while row < end:
            inside = row % self.shape[-2]
            left = min(self.block[0] - inside % self.block[0], self.shape[-2] - inside, end - row, at_once)
            yield self.scale_row(row), left
            row += left


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """A folder's tensors, weights in FP8 with their scales."""

    tensors: dict[str, StoredTensor]
    problems: dict[str, list[str]]
    """What cannot be dequantised: what is wrong, and with which tensors."""


def pair_scales(stored: Mapping[str, StoredTensor], block: Block | None) -> Paired:
    """Bring each weight in FP8 together with its scales.

    Args:
        stored: all tensors of a folder by name.
        block: of the folder's quantisation; None = it has none, and no tensor may be in FP8.
    """
    quantized = {name: tensor for name, tensor in stored.items() if tensor.dtype == FP8}
    if block is None:
        what = f"in {FP8}, and no quantization_config in config.json says how"
        return Paired(tensors=dict(stored), problems={what: sorted(quantized)})
    scales = {name for name in stored if name.endswith(SCALE_SUFFIX)}
    pairs = {name: stored[name + SCALE_SUFFIX] for name in quantized if name + SCALE_SUFFIX in scales}
    problems = {
        f"in {FP8} without scales (*{SCALE_SUFFIX})": sorted(quantized.keys() - pairs.keys()),
        f"scales of no weight in {FP8}": sorted(scales - {scale.name for scale in pairs.values()}),
        f"scales that do not fit blocks of {block[0]} by {block[1]}": [
            complaint
            for name in sorted(pairs)
            if (complaint := _complaint(quantized[name], pairs[name], block))
        ],
    }
    tensors = {name: tensor for name, tensor in stored.items() if name not in scales}
    return Paired(
        tensors=tensors | {name: _pair(quantized[name], scale, block) for name, scale in pairs.items()},
        problems=problems,
    )


def _pair(tensor: StoredTensor, scales: StoredTensor, block: Block) -> QuantizedTensor:
    own = {each.name: getattr(tensor, each.name) for each in fields(StoredTensor)}
    return QuantizedTensor(**own, scales=scales, block=block)


def _complaint(tensor: StoredTensor, scales: StoredTensor, block: Block) -> str | None:
    """What is wrong with a tensor's scales."""
    if len(tensor.shape) < 2:
        return f"{tensor.name} is {list(tensor.shape)}, no matrix"
    wanted = _grid(tensor.shape, block)
    if scales.shape != wanted:
        has = f"{scales.name} is {list(scales.shape)} in {scales.file.name}"
        return f"{has}, {list(tensor.shape)} needs {list(wanted)}"
    if scales.dtype not in SCALE_DTYPES:
        return f"{scales.name} is {scales.dtype} in {scales.file.name}, not {' or '.join(SCALE_DTYPES)}"
    return None


def _grid(shape: Shape, block: Block) -> Shape:
    """Shape of the scales of a tensor of `shape`."""
    return (*shape[:-2], -(-shape[-2] // block[0]), -(-shape[-1] // block[1]))
