"""GRPO advantages: how much better a response is than its siblings (arXiv 2402.03300, section 4.1.2).

A = (r - mean) / (std + 1e-6) over the responses to one prompt, with the population's standard
deviation, in float64; without the division it is Dr. GRPO's (arXiv 2503.20783).

Invariants:
- A group of equal rewards gets exactly 0, whatever rounding says of its mean.
- The result does not depend on the order of the responses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from flexfloor.checks import require
from flexfloor.errors import RewardError

STD_EPSILON = 1e-6


def grpo_advantages(
    rewards: Sequence[float],
    uids: Sequence[str],
    response_indices: Sequence[int],
    norm_by_std: bool = True,
) -> np.ndarray:
    """Return the advantage of each response, float64 [N], in the order given.

    Args:
        rewards: [N], one number a response.
        uids: [N], the prompt each belongs to; equal uids form a group.
        response_indices: [N], only for error messages.
        norm_by_std: divide by the group's standard deviation.

    Raises:
        RewardError: a reward is NaN or infinite; names prompt and response.
        ConfigError: a group of one response, which has nothing to compare with.
    """
    rewards_N = _finite_rewards(rewards, uids, response_indices)
    advantages_N = np.zeros_like(rewards_N)
    for uid, members in _groups(uids):
        allowed = f"2 or more for adv_estimator=grpo (prompt {uid!r} has a single response)"
        require(len(members) >= 2, "rollout.n", len(members), allowed)
        advantages_N[members] = group_advantages(rewards_N[members], norm_by_std)
    return advantages_N


def group_advantages(rewards_n: np.ndarray, norm_by_std: bool = True) -> np.ndarray:
    """Return the advantages within one group, float64 [n]."""
    rewards_n = np.asarray(rewards_n, dtype=np.float64)
    if np.all(rewards_n == rewards_n[0]):
        return np.zeros_like(rewards_n)
    # sorted, so that the sums and with them the last bit do not depend on the order
    ordered_n = np.sort(rewards_n)
    centered_n = rewards_n - ordered_n.mean()
    return centered_n / (ordered_n.std() + STD_EPSILON) if norm_by_std else centered_n


def filter_groups(rewards: Sequence[float], uids: Sequence[str]) -> np.ndarray:
    """Return which responses belong to a group whose rewards differ, bool [N]; the others teach nothing."""
    rewards_N = np.asarray(rewards, dtype=np.float64)
    keep_N = np.zeros(len(rewards_N), dtype=bool)
    for _, members in _groups(uids):
        keep_N[members] = np.any(rewards_N[members] != rewards_N[members[0]])
    return keep_N


def _groups(uids: Sequence[str]) -> Iterator[tuple[str, list[int]]]:
    members: dict[str, list[int]] = {}
    for position, uid in enumerate(uids):
        members.setdefault(uid, []).append(position)
    return iter(members.items())


def _finite_rewards(
    rewards: Sequence[float], uids: Sequence[str], response_indices: Sequence[int]
) -> np.ndarray:
    assert len(rewards) == len(uids) == len(response_indices), (
        len(rewards),
        len(uids),
        len(response_indices),
    )
    for reward, uid, response_index in zip(rewards, uids, response_indices, strict=True):
        if reward is None or not np.isfinite(reward):
            raise RewardError(f"reward {reward!r} of prompt {uid!r}, response {response_index}: not finite")
    return np.asarray(rewards, dtype=np.float64)
