"""Rows of stored tensors, read straight to where they belong.

Where a file has the type of the memory, the system reads into it; elsewhere rows pass through a small buffer
that is used again, and are converted on the way, those in FP8 multiplied by their scales. So reading takes no
memory worth speaking of beside what is filled, whatever the size of a tensor. Where only some columns are
wanted, no others are read unless those are few.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import torch
from torch import Tensor

from flexfloor.errors import WeightsError
from flexfloor.models.weights.fusion import row_width
from flexfloor.models.weights.quantized import QuantizedTensor
from flexfloor.models.weights.stored import DTYPES, StoredTensor

BUFFER_BYTES = 4 * 2**20
"""Through which rows pass that are converted; small enough to stay in a processor's cache."""
PAGE_BYTES = 4096
"""What the system reads at least."""


class RowsReader:
    """Reads from any number of files, each opened once; a context that closes them."""

    def __init__(self) -> None:
        self._files: dict[Path, BinaryIO] = {}
        self._open = ExitStack()
        self._buffer = torch.empty(0, dtype=torch.uint8)

    def __enter__(self) -> RowsReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    @torch.no_grad()
    def read(self, stored: StoredTensor, first_row: int, target: Tensor, first_column: int = 0) -> None:
        """Fill `target`, [rows, columns] of any type and device, with `stored` from `first_row` and
        `first_column` on.

        Raises:
            WeightsError: the file ends before, or cannot be read.
        """
        dtype = DTYPES[stored.dtype]
        if isinstance(stored, QuantizedTensor):
            self._read_scaled(stored, first_row, target, first_column)
        elif _reads_into(target, dtype) and not _are_few(stored, target.size(1)):
            self._fill(stored, first_row, target, first_column)
        else:
            for rows in target.split(_rows_at_once(stored, dtype)):
                rows.copy_(self._staged_rows(stored, first_row, rows.shape, first_column))
                first_row += rows.size(0)

    def _read_scaled(
        self, stored: QuantizedTensor, first_row: int, target: Tensor, first_column: int
    ) -> None:
        """Fill `target` with values times scales."""
        columns = slice(first_column, first_column + target.size(1))
        scales, first_scale = self._scales(stored, first_row, target.size(0)), stored.scale_row(first_row)
        at_once = _rows_at_once(stored, torch.float32)
        for scale_row, num_rows in stored.runs(first_row, target.size(0), at_once):
            values = self._staged_rows(stored, first_row, target[:num_rows].shape, first_column)
            values = values.to(target.device).float()
            factors = scales[scale_row - first_scale].repeat_interleave(stored.block[1])[columns]
            target[:num_rows].copy_(values.mul_(factors.to(target.device)))
            first_row, target = first_row + num_rows, target[num_rows:]

    def _scales(self, stored: QuantizedTensor, first_row: int, num_rows: int) -> Tensor:
        """The scales that hold for rows, [rows of scales, columns of scales] in float32."""
        if not num_rows:
            return torch.empty(0)
        first, last = (stored.scale_row(row) for row in (first_row, first_row + num_rows - 1))
        scales = torch.empty(last - first + 1, row_width(stored.scales.shape))
        self.read(stored.scales, first, scales)
        return scales

    def _staged_rows(
        self, stored: StoredTensor, first_row: int, shape: tuple[int, ...], first_column: int
    ) -> Tensor:
        """[rows, columns] of `shape` in the file's type; the next call overwrites them."""
        self._require_buffer()
        dtype, (num_rows, wanted) = DTYPES[stored.dtype], shape
        first, width = (0, row_width(stored.shape)) if _are_few(stored, wanted) else (first_column, wanted)
        staged = self._staged(num_rows * width * dtype.itemsize).view(dtype).view(num_rows, width)
        self._fill(stored, first_row, staged, first)
        return staged[:, first_column - first :][:, :wanted]

    def _require_buffer(self) -> None:
        if not self._buffer.numel():
            self._buffer = torch.empty(BUFFER_BYTES, dtype=torch.uint8)

    def _staged(self, num_bytes: int) -> Tensor:
        if num_bytes > self._buffer.numel():  # a single row that is longer
            self._buffer = torch.empty(num_bytes, dtype=torch.uint8)
        return self._buffer[:num_bytes]

    def _fill(self, stored: StoredTensor, first_row: int, target: Tensor, first_column: int) -> None:
        """Fill `target`, of the file's type, with the bytes of columns of rows."""
        width, size = row_width(stored.shape), target.element_size()
        offset = stored.offset + (first_row * width + first_column) * size
        wanted = memoryview(target.detach().view(-1).view(torch.uint8).numpy().data)
        at_once = len(wanted) if target.size(1) == width else target.size(1) * size
        for begin in range(0, len(wanted), max(at_once, 1)):
            self._fill_bytes(stored, offset, wanted[begin : begin + at_once])
            offset += width * size

    def _fill_bytes(self, stored: StoredTensor, offset: int, left: memoryview) -> None:
        descriptor = self._file(stored.file).fileno()
        while left:
            count = os.preadv(descriptor, [left], offset)
            if not count:
                raise WeightsError(f"{stored.file} ends within {stored.name}: {len(left)} bytes are missing")
            left, offset = left[count:], offset + count

    def _file(self, path: Path) -> BinaryIO:
        if path not in self._files:
            self._files[path] = self._open.enter_context(path.open("rb", buffering=0))
        return self._files[path]


def _reads_into(target: Tensor, dtype: torch.dtype) -> bool:
    """Whether the system can read into `target` what a file has in `dtype`."""
    return target.dtype == dtype and target.device.type == "cpu" and target.is_contiguous()


def _are_few(stored: StoredTensor, num_columns: int) -> bool:
    """Whether so many columns of a row are better read with the others."""
    num_bytes = num_columns * DTYPES[stored.dtype].itemsize
    return num_columns < row_width(stored.shape) and num_bytes < PAGE_BYTES


def _rows_at_once(stored: StoredTensor, dtype: torch.dtype) -> int:
    """As many rows as fit the buffer in `dtype`, and one at least."""
    return max(1, BUFFER_BYTES // max(row_width(stored.shape) * dtype.itemsize, 1))
