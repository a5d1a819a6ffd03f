"""Memory on the host for what a device holds: chunks that it copies to and from while it computes.

Tensors lie in them end to end, as bytes, so that one may reach from a chunk into the next.

Invariants:
- Chunks are made once, and are together less than a chunk greater than what was laid into them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from flexfloor import device

CHUNK_BYTES = 2**28
"""A power of two, to which Torch rounds up what is pinned."""


class HostChunks:
    """Of one rank; none before something is laid into them."""

    def __init__(self) -> None:
        self._chunks: list[Tensor] = []

    def pieces(
        self, tensors: Iterable[Tensor], *, start: int = 0, most: int | None = None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Bytes of the tensors, which are contiguous, and as many on the host, end to end.

        Args:
            start: place of the first tensor's first byte.
            most: bytes of a piece; a chunk's when not given.
        """
        most = min(most or CHUNK_BYTES, CHUNK_BYTES)
        for tensor in tensors:
            left = tensor.detach().view(-1).view(torch.uint8)
            while len(left):
                chunk, at = divmod(start, CHUNK_BYTES)
                while chunk >= len(self._chunks):
                    self._chunks.append(device.host_memory(CHUNK_BYTES))
                taken = min(len(left), CHUNK_BYTES - at, most)
                yield left[:taken], self._chunks[chunk][at : at + taken]
                left, start = left[taken:], start + taken
