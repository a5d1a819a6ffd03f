"""What `flexfloor rollout` generates, and where it writes."""

from __future__ import annotations

from dataclasses import dataclass

from flexfloor.checks import require, require_choice, require_range

SPLITS = ("train", "val")


@dataclass(kw_only=True)
class GenerateConfig:
    """Generate and score only: one jsonl line a response. `flexfloor train` looks at none of this."""

    output: str = "${trainer.default_local_dir}/rollout.jsonl"
    """jsonl file; one that is there is replaced"""
    split: str = "val"
    """prompts to take: `train` or `val`; `val` samples as rollout.val says"""
    max_prompts: int | None = None
    """take the first ones only; null = all of the split"""

    def __post_init__(self) -> None:
        require(bool(self.output), "generate.output", self.output, "a file")
        require_choice("generate.split", self.split, SPLITS)
        if self.max_prompts is not None:
            require_range("generate.max_prompts", self.max_prompts, 1)
