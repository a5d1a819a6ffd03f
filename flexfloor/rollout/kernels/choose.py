"""Which operators a rollout takes: compiled loops where they can be had, PyTorch's elsewhere."""

from __future__ import annotations

import logging

import torch
import torch.distributed as dist

from flexfloor import device
from flexfloor.checks import require
from flexfloor.rollout.kernels.fused import FusedOperators
from flexfloor.rollout.kernels.library import CompilerError
from flexfloor.rollout.kernels.plain import Operators, PlainOperators

log = logging.getLogger(__name__)


def choose_operators(setting: str, dtype: torch.dtype, num_experts: int) -> Operators:
    """The operators that `rollout.kernels` asks for.

    Args:
        dtype: of the rows of a pass.
        num_experts: of a layer, on all ranks.

    Raises `ConfigError` when it asks for compiled ones that cannot be had here.
    """
    if setting == "off" or (setting == "auto" and not device.is_cpu_host()):
        return PlainOperators()
    require(device.is_cpu_host(), "rollout.kernels", setting, "auto or off where ranks compute on a GPU")
    try:
        return FusedOperators(dtype, num_experts)
    except CompilerError as error:
        require(setting == "auto", "rollout.kernels", setting, f"auto or off here: {error}")
        if dist.get_rank() == 0:
            log.warning("rollout.kernels = auto: %s; taking PyTorch's operators, which are slower", error)
        return PlainOperators()
