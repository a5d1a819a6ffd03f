"""Whether a lease is likely to save time, for `overlap.mode=auto`."""

from __future__ import annotations

from flexfloor.schedule.cost import CostModel


def loss(
    costs: CostModel, *, num_replicas: int, rung: int, round_tokens: int, seconds_left: float | None
) -> str:
    """Why a lease of the positions from `rung` on would save nothing, in words; empty if it may.

    Args:
        num_replicas: positions of the expert group.
        round_tokens: rows of one of its micro-batches.
        seconds_left: until the rollout is likely to end; None while nobody can tell, and then it is tried.
    """
    if seconds_left is None:
        return ""
    moving = costs.shrink_seconds(num_replicas, max(1, num_replicas - rung), 0)
    training = costs.train_seconds(round_tokens)
    if seconds_left > moving + training:
        return ""
    return (
        f"{seconds_left:.2f} s of the rollout are left, and experts take {moving:.2f} s to move and "
        f"a micro-batch {training:.2f} s"
    )
