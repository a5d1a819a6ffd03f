"""Where how many ranks run, and how they share the model."""

from __future__ import annotations

from dataclasses import dataclass, field

from flexfloor.checks import require, require_choice, require_range
from flexfloor.config.slurm import SlurmConfig

KINDS = ("local", "slurm")


@dataclass(kw_only=True)
class LaunchConfig:
    """Ranks that `flexfloor` starts, here or as a job; under `torchrun` its own world size counts."""

    kind: str = "local"
    """`local` = on this machine, `slurm` = as a job of Slurm; launch=local and launch=slurm set it"""
    nproc: int = 1
    """ranks to start, on each machine; not looked at under torchrun"""
    timeout_seconds: float = 600.0
    """longest that a rank waits for the others in a collective before the run ends with an error"""
    hang_seconds: float = 45.0
    """longest that a rank may get nothing done before the run ends and says where it hangs; 0 = for ever.
    Setting up, checkpoints and logging have more, a reward has `reward.timeout_seconds`"""
    threads_per_rank: int | None = None
    """CPU threads of each rank; null = the ranks of a machine share its cores evenly"""
    slurm: SlurmConfig = field(default_factory=SlurmConfig)
    """what a job asks for; not looked at for ranks on this machine"""

    def __post_init__(self) -> None:
        require_choice("launch.kind", self.kind, KINDS)
        require_range("launch.nproc", self.nproc, 1)
        require_range("launch.timeout_seconds", self.timeout_seconds, above=0)
        require_range("launch.hang_seconds", self.hang_seconds, 0)
        if self.threads_per_rank is not None:
            require_range("launch.threads_per_rank", self.threads_per_rank, 1)
        gpus = self.slurm.gpus_per_node
        allowed = f"launch.nproc = {self.nproc} or more, one a rank, or null for a job without GPUs"
        enough = self.kind != "slurm" or gpus is None or gpus >= self.nproc
        require(enough, "launch.slurm.gpus_per_node", gpus, allowed)

    @property
    def num_ranks(self) -> int:
        """Ranks of the whole run, on all machines."""
        return self.nproc * (self.slurm.nodes if self.kind == "slurm" else 1)


@dataclass(kw_only=True)
class ParallelConfig:
    """How ranks share the model: dense layers within each replica, experts over each EP group."""

    ep: int = 1
    """ranks of an EP group; divides the number of ranks and of experts"""
    tp: int = 1
    """ranks of a replica, which cut attention, dense layers and vocabulary among them; divides `parallel.ep`,
    and heads, key/value heads and vocabulary of the model"""
    pp: int = 1
    """pipeline stages: 1 is all that this version knows"""

    def __post_init__(self) -> None:
        require_range("parallel.ep", self.ep, 1)
        allowed = f"a divisor of parallel.ep = {self.ep}, so that each EP group holds whole replicas"
        require(self.tp >= 1 and self.ep % self.tp == 0, "parallel.tp", self.tp, allowed)
        reason = "pipeline parallelism is not supported: at each token all stages but one would wait"
        allowed = f"1 ({reason}; parallel.ep spreads the experts over ranks)"
        require(self.pp == 1, "parallel.pp", self.pp, allowed)
