"""The memory of a run as a table: what a GPU holds, what comes and goes, and whether it has that much.

Invariants:
- The rows above a sum add up to it.
"""

from __future__ import annotations

from flexfloor.doctor.memory import GpuMemory

GIB = 2**30


def memory_rows(held: GpuMemory, budget: int) -> list[tuple[str, str]]:
    """Name and GiB of each part.

    Args:
        budget: bytes that a GPU has to give.
    """
    parts = {
        "dense weights": held.dense,
        "own experts": held.experts,
        "gradients": held.gradients,
        "optimizer": held.staying,
        "always": held.state,
        "KV cache, while generating": held.cache,
        "optimizer, while training": held.optimizer - held.staying,
        "activations, while training": held.activations,
        "at most": held.most,
        "a GPU has to give": budget,
    }
    rows = [(name, f"{size / GIB:.1f}") for name, size in parts.items()]
    return [*rows, ("fits", "yes" if held.most <= budget else "NO")]
