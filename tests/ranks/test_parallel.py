"""Every rank knows its place, and the expert group can be switched and comes home."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
import torch.distributed as dist

from flexfloor import parallel
from flexfloor.errors import ConfigError, RankError
from flexfloor.launch import run_ranks
from flexfloor.parallel import Layout
from megatron_patches.parallel_state import pop_expert_group, push_expert_group


def place(ep_size: int, tp_size: int = 1) -> tuple[Layout, dict[str, list[int]]]:
    """This rank's layout and who is in its groups."""
    layout = parallel.initialize(ep_size=ep_size, tp_size=tp_size, seed=1, timeout_seconds=60)
    groups = parallel.groups()
    names = ("tp", "dp", "ep", "expt_dp")
    members = {name: dist.get_process_group_ranks(getattr(groups, name)) for name in names}
    parallel.destroy()
    again = parallel.initialize(ep_size=1, seed=1, timeout_seconds=60)
    assert (again.ep_size, again.ep_index) == (1, dist.get_rank())
    return layout, members


def wait_for_peer_in_expert_group() -> None:
    """Rank 0 waits in a collective of the expert group that rank 1 never joins."""
    parallel.initialize(ep_size=2, seed=1, timeout_seconds=2)
    if dist.get_rank() == 1:
        time.sleep(300)
    dist.all_reduce(torch.ones(1), group=parallel.groups().ep)


def time_outs() -> dict[str, float]:
    """Seconds that each process group of a set-up rank waits, by the group's name."""
    parallel.initialize(ep_size=2, seed=1, timeout_seconds=77)
    cpu = torch.device("cpu")
    return {
        name: group._get_backend(cpu).options._timeout.total_seconds()
        for group, name in dist.distributed_c10d._world.pg_names.items()
        if dist.get_rank() in dist.get_process_group_ranks(group)
    }


def nest_expert_groups() -> list[Any]:
    """Sizes of the expert group as groups are pushed and popped, and what a wrong use says."""
    from megatron.core.parallel_state import get_expert_model_parallel_world_size as size

    parallel.initialize(ep_size=4, seed=1, timeout_seconds=60)
    pair, alone = dist.new_group([0, 1]), dist.new_group([0])
    if dist.get_rank() > 0:
        return [_complaint(push_expert_group, alone)]
    seen = [size()]
    for group in (pair, alone):
        push_expert_group(group)
        seen.append(size())
    refused = [_complaint(pop_expert_group, pair)]
    for group in (alone, pair):
        pop_expert_group(group)
        seen.append(size())
    return [*seen, *refused, _complaint(pop_expert_group, pair)]


def _complaint(call: Any, *args: Any) -> str:
    try:
        call(*args)
    except AssertionError as error:
        return str(error)
    return "nothing"


def test_layout_of_four_ranks_in_two_expert_groups() -> None:
    for rank, (layout, members) in enumerate(run_ranks(place, 4, 2, threads_per_rank=1)):
        assert layout == Layout(
            world_size=4,
            rank=rank,
            tp_size=1,
            tp_rank=0,
            dp_size=4,
            dp_rank=rank,
            ep_size=2,
            ep_rank=rank % 2,
            edp_size=2,
            edp_rank=rank // 2,
            ep_index=rank // 2,
        )
        assert members == {
            "tp": [rank],
            "dp": [0, 1, 2, 3],
            "ep": [0, 1] if rank < 2 else [2, 3],
            "expt_dp": [rank % 2, rank % 2 + 2],
        }


def test_layout_of_four_ranks_in_two_replicas() -> None:
    for rank, (layout, members) in enumerate(run_ranks(place, 4, 4, 2, threads_per_rank=1)):
        assert (layout.tp_size, layout.tp_rank) == (2, rank % 2)
        assert (layout.dp_size, layout.dp_rank) == (2, rank // 2)
        assert (layout.ep_size, layout.ep_rank, layout.edp_size) == (4, rank, 1)
        replica = [0, 1] if rank < 2 else [2, 3]
        alike = [rank % 2, rank % 2 + 2]
        assert members == {"tp": replica, "dp": alike, "ep": [0, 1, 2, 3], "expt_dp": [rank]}


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"ep_size": 3}, "parallel.ep = 3: must be a divisor of the number of ranks = 4"),
        ({"ep_size": 8}, "parallel.ep = 8: must be a divisor of the number of ranks = 4"),
        ({"ep_size": 0}, "parallel.ep = 0: must be a divisor of the number of ranks = 4"),
        ({"ep_size": 1, "tp_size": 2}, "parallel.tp = 2: must be a divisor of parallel.ep = 1"),
        ({"ep_size": 4, "tp_size": 3}, "parallel.tp = 3: must be a divisor of parallel.ep = 4"),
        ({"ep_size": 2, "tp_size": 0}, "parallel.tp = 0: must be a divisor of parallel.ep = 2"),
        ({"ep_size": 1, "pp_size": 2}, "parallel.pp = 2: must be 1"),
    ],
)
def test_sizes_that_do_not_fit_are_refused_without_ranks(sizes: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parallel.check_sizes(world_size=4, **sizes)
    assert str(raised.value) == message


def test_expert_group_has_the_time_out_of_the_run() -> None:
    with pytest.raises(RankError, match=r"^rank 0 of 2: .*[Tt]im"):
        run_ranks(wait_for_peer_in_expert_group, 2, threads_per_rank=1, total_timeout_seconds=60)


def test_expert_groups_nest_and_refuse_a_wrong_order() -> None:
    first, *others = run_ranks(nest_expert_groups, 4, threads_per_rank=1)
    *sizes, out_of_order, empty = first
    assert sizes == [4, 2, 1, 2, 4]
    assert "is not the active expert group" in out_of_order
    assert "is not the active expert group" in empty
    assert others == [["a rank outside the group cannot make it its expert group"]] * 3


def test_every_group_has_the_time_out_of_the_run() -> None:
    for found in run_ranks(time_outs, 4, collective_timeout_seconds=99, threads_per_rank=1):
        assert len(found) > 10 and set(found.values()) == {77.0}, found
