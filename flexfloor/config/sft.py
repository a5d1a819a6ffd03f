"""The supervised warm start before reinforcement learning."""

from __future__ import annotations

from dataclasses import dataclass, field

from flexfloor.checks import require_range
from flexfloor.train.config import OptimConfig


@dataclass(kw_only=True)
class SftConfig:
    """Steps on the ground-truth answers of the training prompts, so that rewards are not all zero."""

    steps: int = 0
    """optimizer steps; 0 = no warm start"""
    batch_size: int = 32
    """rows a step, over all ranks"""
    optim: OptimConfig = field(default_factory=OptimConfig)
    """its own optimizer and schedule, dropped when the warm start ends"""

    def __post_init__(self) -> None:
        require_range("sft.steps", self.steps, 0)
        require_range("sft.batch_size", self.batch_size, 1)
        self.optim.check("sft.optim")
