"""A switchable expert group: `get_expert_model_parallel_*` answer for the group that is active now.

While a rollout shrinks, the ranks that stay form a smaller expert group. Upstream reads the group, its
size and its rank through `megatron.core.parallel_state`; the answers come from the top of a stack, and
from the home group, the one of training, while the stack is empty.

Invariants:
- With nothing pushed, every answer is upstream's own.
- Group, size and rank always speak of the same group.
- Groups come off in the order opposite to the one they were pushed in.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from torch.distributed import ProcessGroup

from megatron_patches.patch import Patch

_active: list[ProcessGroup] = []


def push_expert_group(group: ProcessGroup) -> None:
    """Make `group`, of which this rank is a member, the expert group until it is popped."""
    assert isinstance(group, ProcessGroup), "a rank outside the group cannot make it its expert group"
    _active.append(group)


def pop_expert_group(group: ProcessGroup) -> None:
    """Go back to the expert group from before `group` was pushed."""
    assert _active and _active[-1] is group, f"{group} is not the active expert group"
    _active.pop()


def _answer_for_active_group(get: Callable[..., ProcessGroup]) -> Callable[..., ProcessGroup]:
    @functools.wraps(get)
    def get_active_group(check_initialized: bool = True) -> ProcessGroup:
        return _active[-1] if _active else get(check_initialized)

    return get_active_group


PATCHES = (
    # Upstream derives the size and the rank from the group, so that one patch moves all three answers.
    Patch(
        target="megatron.core.parallel_state:get_expert_model_parallel_group",
        why="upstream fixes the expert group at start-up; a rollout that releases ranks has to switch it",
        remove_when="upstream's modules take the expert group from the ProcessGroupCollection throughout",
        wrap=_answer_for_active_group,
        upstream_sha={"0.16.1": "bb5022ff32db", "0.19.2": "bb5022ff32db"},
    ),
)
