"""Rows of stored tensors, read straight to where they belong.

Where a file has the type of the memory, the system reads into it; elsewhere rows pass through a small buffer
that is used again, and are converted on the way, those in FP8 multiplied by their scales. So reading takes no
memory worth speaking of beside what is filled, whatever the size of a tensor.
"""

from __future__ import annotations

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
    def read(self, stored: StoredTensor, first_row: int, target: Tensor) -> None:
        """Fill `target`, [rows, width] of any type and device, with rows of `stored` from `first_row` on.

        Raises:
            WeightsError: the file ends before, or cannot be read.
        """
        dtype = DTYPES[stored.dtype]
        if isinstance(stored, QuantizedTensor):
            self._read_scaled(stored, first_row, target)
        elif target.dtype == dtype and target.device.type == "cpu" and target.is_contiguous():
            self._fill(stored, first_row, target)
        else:
            for rows in target.split(_rows_at_once(stored, dtype)):
                rows.copy_(self._staged_rows(stored, first_row, rows.size(0)))
                first_row += rows.size(0)

    def _read_scaled(self, stored: QuantizedTensor, first_row: int, target: Tensor) -> None:
        """Fill `target` with values times scales."""
        scales, first_scale = self._scales(stored, first_row, target.size(0)), stored.scale_row(first_row)
        at_once = _rows_at_once(stored, torch.float32)
        for scale_row, num_rows in stored.runs(first_row, target.size(0), at_once):
            values = self._staged_rows(stored, first_row, num_rows).to(target.device).float()
            factors = scales[scale_row - first_scale].repeat_interleave(stored.block[1])[: target.size(1)]
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

    def _staged_rows(self, stored: StoredTensor, first_row: int, num_rows: int) -> Tensor:
        """Rows in the file's type, [num_rows, width]; the next call overwrites them."""
        self._require_buffer()
        dtype, width = DTYPES[stored.dtype], row_width(stored.shape)
        staged = self._staged(num_rows * width * dtype.itemsize).view(dtype).view(num_rows, width)
        self._fill(stored, first_row, staged)
        return staged

    def _require_buffer(self) -> None:
        if not self._buffer.numel():
            self._buffer = torch.empty(BUFFER_BYTES, dtype=torch.uint8)

    def _staged(self, num_bytes: int) -> Tensor:
        if num_bytes > self._buffer.numel():  # a single row that is longer
            self._buffer = torch.empty(num_bytes, dtype=torch.uint8)
        return self._buffer[:num_bytes]

    def _fill(self, stored: StoredTensor, first_row: int, target: Tensor) -> None:
        """Fill `target`, of the file's type, with the bytes of rows."""
        file = self._file(stored.file)
        file.seek(stored.offset + first_row * row_width(stored.shape) * target.element_size())
        left = memoryview(target.detach().view(-1).view(torch.uint8).numpy().data)
        while left:
            count = file.readinto(left)  # type: ignore[attr-defined]  # a raw file
            if not count:
                raise WeightsError(f"{stored.file} ends within {stored.name}: {len(left)} bytes are missing")
            left = left[count:]

    def _file(self, path: Path) -> BinaryIO:
        if path not in self._files:
            self._files[path] = self._open.enter_context(path.open("rb", buffering=0))
        return self._files[path]


def _rows_at_once(stored: StoredTensor, dtype: torch.dtype) -> int:
    """As many rows as fit the buffer in `dtype`, and one at least."""
    return max(1, BUFFER_BYTES // max(row_width(stored.shape) * dtype.itemsize, 1))
