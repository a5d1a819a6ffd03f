"""The fixed plan: prompts dealt to replicas in data order, whole groups together.

Invariants:
- Every (prompt, response) is dealt exactly once.
- Replicas differ by at most one prompt.
"""

from __future__ import annotations

from itertools import pairwise


def deal_in_order(num_prompts: int, num_replicas: int) -> list[range]:
    """Prompts of each replica, as consecutive ranges; the first replicas take what does not divide."""
    each, more = divmod(num_prompts, num_replicas)
    bounds = [replica * each + min(replica, more) for replica in range(num_replicas + 1)]
    return [range(start, stop) for start, stop in pairwise(bounds)]
