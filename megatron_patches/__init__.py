"""Patches of Megatron-Core: records, a manager that binds and undoes them, and the host's named list."""

from megatron_patches.host import CPU_HOST, EVERY_HOST, WITHOUT_TE, patches_for_host, shut_down, start_up
from megatron_patches.manager import Application, applied, apply
from megatron_patches.patch import Kind, Patch, PatchConflict, PatchError, UpstreamChanged

__all__ = [
    "CPU_HOST",
    "EVERY_HOST",
    "WITHOUT_TE",
    "Application",
    "Kind",
    "Patch",
    "PatchConflict",
    "PatchError",
    "UpstreamChanged",
    "applied",
    "apply",
    "patches_for_host",
    "shut_down",
    "start_up",
]
