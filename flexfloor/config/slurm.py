"""What a job asks of Slurm; read by `flexfloor.jobs.slurm` when `launch=slurm`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from flexfloor.checks import require, require_range

OWN_OPTIONS = {
    "account": "launch.slurm.account",
    "cpus-per-task": "launch.slurm.cpus_per_rank",
    "gpus-per-node": "launch.slurm.gpus_per_node",
    "nodes": "launch.slurm.nodes",
    "ntasks-per-node": "launch.nproc",
    "partition": "launch.slurm.partition",
    "signal": "launch.slurm.stop_seconds",
    "time": "launch.slurm.time_minutes",
}
"""Options of sbatch that have a field of their own."""
RESERVED_OPTIONS = ("array", "error", "ntasks", "open-mode", "output", "wrap")
"""Options of sbatch that a job has no choice about."""


@dataclass(kw_only=True)
class SlurmConfig:
    """One job; each of its tasks is a rank, `launch.nproc` of them on each node."""

    nodes: int = 1
    """machines"""
    gpus_per_node: int | None = None
    """GPUs to ask for on each node, one a rank or more; null = none, on a cluster of CPUs"""
    cpus_per_rank: int | None = None
    """CPU cores of each rank, and its threads if launch.threads_per_rank is null; null = as Slurm has it"""
    time_minutes: int = 60
    """longest that the job runs"""
    stop_seconds: int = 300
    """so long before the time is over the ranks are asked to finish their step, save and end"""
    partition: str | None = None
    """null = the cluster's default"""
    account: str | None = None
    """null = the user's default"""
    sbatch: dict[str, Any] = field(default_factory=dict)
    """further options of sbatch by name, true for one without a value: {constraint: h200, exclusive: true}"""
    setup: list[str] = field(default_factory=list)
    """shell lines that the job runs before its ranks, e.g. `module load cuda`"""
    dry_run: bool = False
    """print the job file and submit nothing"""

    def __post_init__(self) -> None:
        require_range("launch.slurm.nodes", self.nodes, 1)
        require_range("launch.slurm.time_minutes", self.time_minutes, 1)
        require_range("launch.slurm.stop_seconds", self.stop_seconds, 1, below=self.time_minutes * 60)
        for name in ("gpus_per_node", "cpus_per_rank"):
            if getattr(self, name) is not None:
                require_range(f"launch.slurm.{name}", getattr(self, name), 1)
        for name in ("partition", "account"):
            value = getattr(self, name)
            require(value is None or _is_line(value), f"launch.slurm.{name}", value, "a name, or null")
        for line in self.setup:
            require(_is_line(line), "launch.slurm.setup", line, "shell lines without a line break in them")
        for option, value in self.sbatch.items():
            _check_option(str(option), value)


def _check_option(option: str, value: Any) -> None:
    name = f"launch.slurm.sbatch.{option}"
    allowed = "an option of sbatch without its dashes, such as constraint"
    require(bool(re.fullmatch(r"[a-z][a-z0-9-]*", option)), "launch.slurm.sbatch", option, allowed)
    require(option not in OWN_OPTIONS, name, value, f"set as {OWN_OPTIONS.get(option)}")
    require(option not in RESERVED_OPTIONS, name, value, "left out: FlexFloor says this itself")
    plain = value is True or (isinstance(value, int | float) and value is not False)
    allowed = "text, a number, or true for an option without a value"
    require(plain or (isinstance(value, str) and _is_line(value)), name, value, allowed)


def _is_line(value: str) -> bool:
    """Whether `value` is text that stays on its line of the job file."""
    return bool(value.strip()) and value.isprintable()
