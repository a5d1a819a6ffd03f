"""Stand-ins for the calls of `torch.cuda` that Megatron-Core makes unconditionally.

Some thirty upstream modules call these by their full name, so they are replaced at the source. On a host
without CUDA there is one stream, the program itself, and all work is done when the call returns.
"""

from __future__ import annotations

from typing import Any

import torch

from megatron_patches.patch import Kind, Patch


class HostEvent:
    """An event on a host where recorded work is finished work."""

    def synchronize(self) -> None:
        """Return at once."""


class HostStream:
    """The one stream of a host without CUDA; every instance is equal to every other."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Takes what `torch.cuda.Stream` takes and needs none of it."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HostStream)

    def __hash__(self) -> int:
        return hash(HostStream)

    def wait_stream(self, stream: Any) -> None:
        """Return at once: the other stream is this one."""

    def record_event(self, event: Any = None) -> HostEvent:
        """An event that is already done."""
        return HostEvent()


def _stand_in(name: str, why: str, value: Any) -> Patch:
    return Patch(
        target=f"torch.cuda:{name}",
        why=why,
        remove_when="Megatron-Core asks for the device or stream through something that knows the host",
        wrap=lambda _: value,
        upstream_sha={},
        kind=Kind.STAND_IN,
    )


PATCHES = (
    _stand_in(
        "current_device",
        "tensor factories all over upstream take device=torch.cuda.current_device(), which raises here",
        lambda: torch.device("cpu"),
    ),
    _stand_in(
        "Stream",
        "the all-to-all dispatcher and shared experts make side streams when they are built",
        HostStream,
    ),
    _stand_in(
        "current_stream",
        "the dispatcher compares its side stream with the current one in every forward pass",
        lambda device=None: HostStream(),
    ),
    _stand_in(
        "synchronize",
        "checkpointing and group set-up wait for the device",
        lambda device=None: None,
    ),
)
