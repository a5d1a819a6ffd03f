"""Rows of stored tensors, read straight to where they belong.

Where a file has the type of the memory, the system reads into it; elsewhere rows pass through a small buffer
that is used again, and are converted on the way. So reading takes no memory worth speaking of beside what is
filled, whatever the size of a tensor.
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
        start = stored.offset + first_row * row_width(stored.shape) * dtype.itemsize
        if target.dtype == dtype and target.device.type == "cpu" and target.is_contiguous():
            self._fill(stored, start, target)
            return
        self._require_buffer()
        width = target.size(1) * dtype.itemsize
        rows_at_once = max(1, BUFFER_BYTES // max(width, 1))
        for rows in target.split(rows_at_once):
            staged = self._staged(rows.size(0) * width).view(dtype).view(rows.shape)
            self._fill(stored, start, staged)
            rows.copy_(staged)
            start += rows.size(0) * width

    def _require_buffer(self) -> None:
        if not self._buffer.numel():
            self._buffer = torch.empty(BUFFER_BYTES, dtype=torch.uint8)

    def _staged(self, num_bytes: int) -> Tensor:
        if num_bytes > self._buffer.numel():  # a single row that is longer
            self._buffer = torch.empty(num_bytes, dtype=torch.uint8)
        return self._buffer[:num_bytes]

    def _fill(self, stored: StoredTensor, start: int, target: Tensor) -> None:
        file = self._file(stored.file)
        file.seek(start)
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
