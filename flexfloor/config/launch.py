"""How many ranks run, and how they share the model."""

from __future__ import annotations

from dataclasses import dataclass

from flexfloor.checks import require, require_range


@dataclass(kw_only=True)
class LaunchConfig:
    """Ranks that `flexfloor` starts on this machine; under `torchrun` its own world size counts."""

    nproc: int = 1
    """ranks to start; not looked at under torchrun"""
    timeout_seconds: float = 600.0
    """longest that a rank waits for the others in a collective before the run ends with an error"""
    hang_seconds: float = 45.0
    """longest that a rank may get nothing done before the run ends and says where it hangs; 0 = for ever.
    Setting up, checkpoints and logging have more, a reward has `reward.timeout_seconds`"""
    threads_per_rank: int | None = None
    """CPU threads of each rank; null = the ranks of a machine share its cores evenly"""

    def __post_init__(self) -> None:
        require_range("launch.nproc", self.nproc, 1)
        require_range("launch.timeout_seconds", self.timeout_seconds, above=0)
        require_range("launch.hang_seconds", self.hang_seconds, 0)
        if self.threads_per_rank is not None:
            require_range("launch.threads_per_rank", self.threads_per_rank, 1)


@dataclass(kw_only=True)
class ParallelConfig:
    """How ranks share the model: dense layers on every rank, experts spread over each EP group."""

    ep: int = 1
    """ranks of an EP group; divides the number of ranks and of experts"""
    tp: int = 1
    """ranks that share a tensor: 1 is all that this version knows"""
    pp: int = 1
    """pipeline stages: 1 is all that this version knows"""

    def __post_init__(self) -> None:
        require_range("parallel.ep", self.ep, 1)
        for name, kind in (("tp", "tensor"), ("pp", "pipeline")):
            allowed = f"1 ({kind} parallelism is not supported in this version)"
            require(getattr(self, name) == 1, f"parallel.{name}", getattr(self, name), allowed)
