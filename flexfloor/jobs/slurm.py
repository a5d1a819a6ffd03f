"""Hand a run in to Slurm, as one job whose tasks are the ranks, through submitit.

The job file, the pickled configuration and the logs of every rank lie in `<run folder>/slurm`. The job runs
what was composed when it was handed in, whatever becomes of the configuration files until it starts.

Invariants:
- One task is one rank; rank, local rank and meeting point come from Slurm's own variables.
- A rank that fails ends the job, with the exit status that the command line has for the failure.
- Before the time is over the ranks get SIGTERM, so that they save; the same command goes on from there.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

from submitit.core.utils import FailedJobError, FailedSubmissionError
from submitit.helpers import TorchDistributedEnvironment
from submitit.slurm.slurm import SlurmExecutor

from flexfloor.checks import require
from flexfloor.config import Config, SlurmConfig
from flexfloor.errors import ConfigError
from flexfloor.jobs.work import HandedIn, Work

NEEDED = ("sbatch", "srun")
"""Commands of Slurm that a machine has from which jobs are handed in."""


class JobWriter(SlurmExecutor):
    """submitit's executor, which also writes a job file on a machine without Slurm."""

    @classmethod
    def affinity(cls) -> int:
        """Above 0: whether this machine can hand jobs in is asked when one is."""
        return 2

    def job_file(self) -> str:
        """The text of the file that `submit` hands to sbatch."""
        return self._make_submission_file_text(self._submitit_command_str, uid="")


def check(config: Config) -> None:
    """Raise `ConfigError` if no job can be handed in from this machine."""
    folder = str(_folder(config))
    allowed = "a folder without % and line breaks, which Slurm takes for something else"
    plain = folder.isprintable() and "%" not in folder
    require(plain, "trainer.default_local_dir", config.trainer.default_local_dir, allowed)
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing and not config.launch.slurm.dry_run:
        raise ConfigError(
            f"launch=slurm: there is no {' and no '.join(missing)} on this machine; start from a login "
            "node of the cluster, or see the job file with launch.slurm.dry_run=true"
        )


def submit(work: Work, config: Config) -> HandedIn:
    """Hand in `work` as a job and say its number and where its log is; in a dry run, what its file would be.

    Raises:
        ConfigError: Slurm refuses the job.
    """
    writer = JobWriter(_folder(config))
    writer.update_parameters(**_parameters(work, config))
    if config.launch.slurm.dry_run:
        return HandedIn(outcome="not handed in", text=writer.job_file())
    try:
        job = writer.submit(run_task, work.name, config)
    except (FailedJobError, FailedSubmissionError) as error:
        raise ConfigError(f"sbatch refuses the job: {error}") from error
    outcome = f"handed in as job {job.job_id}"
    return HandedIn(outcome=outcome, text=f"{outcome}; log of rank 0: {job.paths.stdout}")


def run_task(name: str, config: Config) -> None:
    """What each task of the job runs: the rank of the command `name` that Slurm has made it."""
    from flexfloor import cli

    # submitit lets the signal pass; until the ranks listen for it, it ends the job.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    TorchDistributedEnvironment().export(set_cuda_visible_devices=False, overwrite=True)
    sys.path.insert(0, os.getcwd())
    status = cli.run_reported(cli.WORKS[name], _with_threads(config))
    if status:
        sys.exit(status)


def _folder(config: Config) -> Path:
    return Path(config.trainer.default_local_dir).absolute() / "slurm"


def _with_threads(config: Config) -> Config:
    """`config` with a rank's cores as its threads: the cores that Slurm shows a task are its own alone."""
    launch = config.launch
    threads = launch.threads_per_rank or launch.slurm.cpus_per_rank
    return dataclasses.replace(config, launch=dataclasses.replace(launch, threads_per_rank=threads))


def _parameters(work: Work, config: Config) -> dict[str, Any]:
    """submitit's names for what the job asks for."""
    slurm = config.launch.slurm
    return {
        "job_name": re.sub(r"[^\w.,=+-]", "_", f"flexfloor {work.name} {config.trainer.experiment_name}"),
        "nodes": slurm.nodes,
        "ntasks_per_node": config.launch.nproc,
        "gpus_per_node": slurm.gpus_per_node,
        "cpus_per_task": slurm.cpus_per_rank,
        "time": slurm.time_minutes,
        "partition": slurm.partition,
        "account": slurm.account,
        "wckey": None,
        "additional_parameters": _options(slurm),
        # Some generated tasks follow the order of sets, which has to be the same on every rank.
        "setup": ["export PYTHONHASHSEED=0", *slurm.setup],
        "srun_args": ["--kill-on-bad-exit=1"],
    }


def _options(slurm: SlurmConfig) -> dict[str, Any]:
    """Options that submitit knows no name for; its own signal would be the one that it requeues on."""
    return {"signal": f"TERM@{slurm.stop_seconds}", **slurm.sbatch}
