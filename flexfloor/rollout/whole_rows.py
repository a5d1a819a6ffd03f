"""Megatron's modules with all rows on every rank of a replica, as a rollout has them.

Training spreads the rows between attention and experts over a replica's ranks (sequence parallelism). A pass
of a rollout has as many rows as it has, also none, and all ranks of a replica sample from all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import nn

from flexfloor.elastic.moe_layer import moe_layers
from flexfloor.elastic.replica import Replica

SPREADS = ("sequence_parallel", "scatter_to_sequence_parallel", "reduce_scatter_embeddings")
"""Upstream's switches, on modules and on their configurations."""


@contextmanager
def whole_rows(model: nn.Module, replica: Replica) -> Iterator[None]:
    """Let each rank of `replica` have all rows in the block; before experts each takes its share of them."""
    if replica.size == 1:
        yield
        return
    with ExitStack() as stack:
        for holder in {id(each): each for each in _holders(model)}.values():
            for name in SPREADS:
                if getattr(holder, name, False):
                    stack.enter_context(_set(holder, name, False))
        for layer in moe_layers(model):
            stack.enter_context(_set(layer, "replica", replica))
        yield


def _holders(model: nn.Module) -> Iterator[Any]:
    for module in model.modules():
        yield module
        yield getattr(module, "config", None)


@contextmanager
def _set(holder: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(holder, name)
    setattr(holder, name, value)
    try:
        yield
    finally:
        setattr(holder, name, before)
