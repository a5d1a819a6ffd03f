"""How much memory a rank may take."""

from __future__ import annotations

from dataclasses import dataclass

from flexfloor.checks import require


@dataclass(kw_only=True)
class MemoryConfig:
    """What a rank's weights, training state, KV cache and guest experts must fit in."""

    budget_bytes: int | None = None
    """of one rank, without its process itself; null = what a GPU has left for the rank when a rollout begins,
    and no limit on a CPU host. A rung whose ranks would need more is not taken"""

    def __post_init__(self) -> None:
        budget = self.budget_bytes
        require(
            budget is None or budget >= 1,
            "memory.budget_bytes",
            budget,
            "a positive number of bytes, or null",
        )
