"""Whether the upstream that is installed is the one that each patch was written against."""

from __future__ import annotations

import megatron_patches
from flexfloor.doctor.types import Finding
from megatron_patches import Kind, Patch, UpstreamChanged, manager


def check_patches(patches: tuple[Patch, ...] | None = None) -> list[Finding]:
    """A finding for each of `patches` (default: this host's list); nothing upstream is changed."""
    megatron_patches.quiet.silence_expected()
    return [_check(patch) for patch in patches or megatron_patches.patches_for_host()]


def _check(patch: Patch) -> Finding:
    hashes = ", ".join(patch.upstream_sha.values())
    found = hashes if patch.kind is not Kind.STAND_IN else "stand-in"
    return Finding(name=patch.target, found=found, complaint=_complaint(patch))


def _complaint(patch: Patch) -> str | None:
    try:
        manager.verify(patch)
    except UpstreamChanged as error:
        return "changed" + str(error).removeprefix(patch.target)
    except ImportError as error:
        return f"changed: {error}"
    return None
