"""Halves that were loaded into the whole are not joined anew; any others are."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from megatron.core.dist_checkpointing.mapping import ShardedTensorFactory

from flexfloor.train.merging import spare_merges

WHOLE = torch.arange(6.0).reshape(3, 2)


def merged(whole: torch.Tensor, parts: Any) -> torch.Tensor:
    """What becomes of `parts`, loaded for a factory of `whole`."""
    factory = ShardedTensorFactory("weight", whole, lambda *_: [], torch.cat)
    spare_merges({"model": [{"weight": factory}], "step": 3})
    return factory.merge_fn(parts)


@pytest.mark.parametrize("whole", [WHOLE, torch.nn.Parameter(WHOLE.clone()), WHOLE[1:]])
def test_parts_that_fill_the_whole_are_the_whole(whole: torch.Tensor) -> None:
    found = merged(whole, [whole.detach()[:1], whole.detach()[1:]])
    assert found.data_ptr() == whole.data_ptr()
    assert torch.equal(found, whole) and not found.requires_grad


@pytest.mark.parametrize(
    "parts",
    [
        [WHOLE[:1].clone(), WHOLE[1:].clone()],
        [WHOLE[1:], WHOLE[:1]],
        [WHOLE[:1]],
        [WHOLE[:1], WHOLE[1:].clone()],
        [WHOLE[:, :1], WHOLE[:, 1:]],
    ],
    ids=["elsewhere", "turned round", "not all", "one elsewhere", "columns"],
)
def test_other_parts_are_joined(parts: list[torch.Tensor]) -> None:
    found = merged(WHOLE, parts)
    assert found.data_ptr() != WHOLE.data_ptr()
    assert torch.equal(found, torch.cat(parts))
