"""Which rank does what: the one module that makes and reads Megatron-Core's parallel state.

`tp_size` neighbouring ranks, a replica, together hold the attention, the dense layers and the vocabulary, and
see the same samples; replicas share the samples out (data parallel). `ep_size` neighbouring ranks, one or
several whole replicas, together hold one full set of experts, and there are `world_size / ep_size` such EP
groups. An expert is never cut.

Invariants:
- Everything past this module gets its process groups as arguments.
- Every group is made with the time-out of the run, so that no collective waits for ever.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import torch.distributed as dist

from flexfloor.checks import require

if TYPE_CHECKING:
    from megatron.core.process_groups_config import ProcessGroupCollection


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """This rank's place among all ranks."""

    world_size: int
    rank: int
    tp_size: int
    """Ranks of a replica, which together hold one copy of what is no expert."""
    tp_rank: int
    """Position in the replica."""
    dp_size: int
    """Replicas: what samples are shared out over."""
    dp_rank: int
    """Which replica this rank belongs to."""
    ep_size: int
    """Ranks that together hold one full set of experts."""
    ep_rank: int
    """Position in the EP group."""
    edp_size: int
    """Copies of each expert: the expert data parallel size, which is the number of EP groups."""
    edp_rank: int
    ep_index: int
    """Which EP group this rank belongs to."""


def initialize(
    *, ep_size: int, seed: int, timeout_seconds: float, tp_size: int = 1, pp_size: int = 1
) -> Layout:
    """Make the process groups of the run and seed the named random states; all ranks call it.

    Raises:
        ConfigError: a size is not supported or does not divide the number of ranks.
    """
    from megatron.core import parallel_state
    from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed

    check_sizes(world_size=dist.get_world_size(), ep_size=ep_size, tp_size=tp_size, pp_size=pp_size)
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=tp_size,
        expert_model_parallel_size=ep_size,
        expert_tensor_parallel_size=1,
        distributed_timeout_minutes=timeout_seconds / 60,
    )
    _set_timeouts(timedelta(seconds=timeout_seconds))
    model_parallel_cuda_manual_seed(seed, force_reset_rng=True)
    edp_rank = parallel_state.get_expert_data_parallel_rank()
    return Layout(
        world_size=dist.get_world_size(),
        rank=dist.get_rank(),
        tp_size=tp_size,
        tp_rank=parallel_state.get_tensor_model_parallel_rank(),
        dp_size=parallel_state.get_data_parallel_world_size(),
        dp_rank=parallel_state.get_data_parallel_rank(),
        ep_size=ep_size,
        ep_rank=parallel_state.get_expert_model_parallel_rank(),
        edp_size=parallel_state.get_expert_data_parallel_world_size(),
        edp_rank=edp_rank,
        ep_index=edp_rank,
    )


def _set_timeouts(timeout: timedelta) -> None:
    """Give the run's time-out to the one group that upstream makes without any, of experts over gloo."""
    c10d = dist.distributed_c10d
    for group in c10d._world.pg_map:
        if dist.get_rank() in dist.get_process_group_ranks(group):
            c10d._set_pg_timeout(timeout, group)


def check_sizes(*, world_size: int, ep_size: int, tp_size: int = 1, pp_size: int = 1) -> None:
    """Raise `ConfigError` for a layout that `initialize` would refuse; needs no ranks."""
    require(pp_size == 1, "parallel.pp", pp_size, "1")
    nests = tp_size >= 1 and ep_size % tp_size == 0
    require(nests, "parallel.tp", tp_size, f"a divisor of parallel.ep = {ep_size}")
    divides = ep_size >= 1 and world_size % ep_size == 0
    require(divides, "parallel.ep", ep_size, f"a divisor of the number of ranks = {world_size}")


def groups() -> ProcessGroupCollection:
    """The process groups that `initialize` made, to be handed to whatever needs one."""
    from megatron.core.process_groups_config import ProcessGroupCollection

    return ProcessGroupCollection.use_mpu_process_groups()


def destroy() -> None:
    """Take down the groups of `initialize`; the default group stays."""
    from megatron.core import parallel_state

    parallel_state.destroy_model_parallel()


def enter_expert_group(group: dist.ProcessGroup) -> None:
    """Let parallel state name `group` as this rank's expert group, until `leave_expert_group`."""
    from megatron_patches.parallel_state import push_expert_group

    push_expert_group(group)


def leave_expert_group(group: dist.ProcessGroup) -> None:
    """Let parallel state name the expert group from before `group` was entered; the newest leaves first."""
    from megatron_patches.parallel_state import pop_expert_group

    pop_expert_group(group)
