"""Ranks plan alike only if they hold the same samples; a difference would hang them in a collective."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import torch
import torch.distributed as dist

from flexfloor import device
from flexfloor.train.types import Sample


def assert_same_samples(samples: Sequence[Sample], group: dist.ProcessGroup) -> None:
    """Raise `AssertionError` on every rank of `group` unless all hold the same samples in the same order."""
    mine = _fingerprint(samples)
    # the largest value and the negated smallest one in a single exchange
    extremes = torch.tensor([mine, -mine], dtype=torch.int64, device=device.current_device())
    dist.all_reduce(extremes, op=dist.ReduceOp.MAX, group=group)
    largest, smallest = extremes[0].item(), -extremes[1].item()
    assert largest == smallest, f"ranks hold different samples ({len(samples)} on rank {dist.get_rank()})"


def _fingerprint(samples: Sequence[Sample]) -> int:
    digest = 0
    for sample in samples:
        digest = zlib.crc32(f"{sample.uid}/{sample.response_index}/{len(sample.prompt_ids)}".encode(), digest)
        digest = zlib.crc32(sample.response_ids.tobytes(), digest)
    return digest
