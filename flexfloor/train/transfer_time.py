"""How long a checkpoint may take to write or read, by the size of the model."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from flexfloor import heartbeat

_SLOWEST_BYTES_PER_SECOND = 20e6
_COPIES = 4
"""Of each weight: itself, and at most two moments and a master copy of the optimizer."""


def transfer_seconds(model: Sequence[torch.nn.Module]) -> float:
    """Longest that this rank's share of a checkpoint may take, at a rate that any file system reaches."""
    weights = sum(each.numel() for module in model for each in module.parameters())
    return weights * 4 * _COPIES / _SLOWEST_BYTES_PER_SECOND


def allowed_by_size(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a function with an argument `model` the time that a model of that size may need."""

    @functools.wraps(function)
    def within(*args: Any, model: Sequence[torch.nn.Module], **kwargs: Any) -> Any:
        with heartbeat.allow(transfer_seconds(model)):
            return function(*args, model=model, **kwargs)

    return within
