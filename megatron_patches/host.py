"""The named lists of patches, and the start-up that applies the list which fits this host.

Invariants:
- Importing this package changes nothing upstream; `start_up` does, once for a process.
"""

from __future__ import annotations

import importlib.util

from flexfloor import device
from megatron_patches import (
    clip_grads,
    filesystem_async,
    manager,
    mappings,
    moe_utils,
    multi_latent_attention,
    optimizer,
    parallel_state,
    quiet,
    strategies_torch,
    tensor_parallel_random,
    torch_cuda,
)
from megatron_patches.patch import Patch, patches_for_version, upstream_version

EVERY_HOST: tuple[Patch, ...] = (
    *parallel_state.PATCHES,
    *filesystem_async.PATCHES,
    *strategies_torch.PATCHES,
)
"""What has no seam upstream, on any host."""

WITHOUT_TE: tuple[Patch, ...] = (
    *moe_utils.WITHOUT_TE,
    *multi_latent_attention.PATCHES,
)
"""What takes Transformer Engine for granted, on a GPU too."""

CPU_HOST: tuple[Patch, ...] = (
    *torch_cuda.PATCHES,
    *tensor_parallel_random.PATCHES,
    *mappings.PATCHES,
    *moe_utils.PATCHES,
    *optimizer.PATCHES,
    *clip_grads.PATCHES,
)
"""What stands in the way where there is no CUDA device."""

_held: list[manager.Application] = []


def patches_for_host() -> tuple[Patch, ...]:
    """The list that `start_up` applies on this machine, to the Megatron-Core that is installed."""
    patches = EVERY_HOST
    if importlib.util.find_spec("transformer_engine") is None:
        patches += WITHOUT_TE
    if device.is_cpu_host():
        patches += CPU_HOST
    return patches_for_version(patches, upstream_version("megatron.core"))


def start_up() -> list[str]:
    """Silence the expected import messages, apply this host's patches and return their targets.

    Safe to call again: a process that holds the patches keeps them.

    Raises:
        UpstreamChanged: the installed Megatron-Core is not the one that a patch was written against.
    """
    quiet.silence_expected()
    if not _held:
        _held.append(manager.apply(patches_for_host()))
    return [patch.target for patch in _held[0].patches]


def shut_down() -> bool:
    """Take the patches of `start_up` off again; whether they held."""
    if not _held:
        return False
    _held.pop().undo()
    return True
