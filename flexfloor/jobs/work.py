"""What a command does with a configuration, and where: on this machine, as a launcher's rank, or as a job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flexfloor.config import Config, is_rank
from flexfloor.errors import RankError


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A command that runs on ranks."""

    name: str
    """The command."""
    check: Callable[[Config], None]
    """Raises `ConfigError` or `DataError` for settings and data that would stop it on its ranks."""
    on_rank: Callable[[Config], None]
    """What each rank runs."""
    stoppable: bool
    """Whether its ranks finish and save when they are asked to stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedIn:
    """Work that has not run here."""

    outcome: str
    """In a few words, for a table."""
    text: str
    """What the user sees: where it runs and how to follow it, or in a dry run the job file."""


def check(work: Work, config: Config) -> None:
    """Raise `ConfigError` or `DataError` for what would keep `work` from starting, or stop it soon."""
    work.check(config)
    if is_handed_in(config):
        from flexfloor.jobs import slurm

        slurm.check(config)


def is_handed_in(config: Config) -> bool:
    """Whether the ranks run as a job elsewhere, and this process only hands it in."""
    return config.launch.kind == "slurm" and not is_rank()


def start(work: Work, config: Config) -> HandedIn | None:
    """Run `work` where `config` says, to its end; or hand it in as a job, and return what there is to say."""
    if is_handed_in(config):
        from flexfloor.jobs.slurm import submit

        return submit(work, config)
    try:
        _run_ranks(work, config)
    except RankError as error:
        raise _with_advice(error, config) from error.__cause__
    return None


def _run_ranks(work: Work, config: Config) -> None:
    from flexfloor import launch

    settings: dict[str, Any] = {
        "collective_timeout_seconds": config.launch.timeout_seconds,
        "hang_seconds": config.launch.hang_seconds,
        "stacks_folder": Path(config.trainer.default_local_dir),
        "threads_per_rank": config.launch.threads_per_rank,
    }
    if is_rank():
        launch.run_this_rank(work.on_rank, config, **settings)
    else:
        launch.run_ranks(work.on_rank, config.launch.nproc, config, **settings, stoppable=work.stoppable)


def _with_advice(error: RankError, config: Config) -> RankError:
    """`error` as it is, or with what to lower when the kernel may have killed the rank for its memory."""
    if error.was_killed:
        from flexfloor.stages.memory import advice

        error.args = (f"{error}\nif memory was short: {advice(error.stage, config)}",)
    return error


def train_on_rank(config: Config) -> None:
    """What each rank of `flexfloor train` runs; here, so that the starting process need not import it."""
    from flexfloor.recipes.grpo import train

    train(config)


def generate_on_rank(config: Config) -> None:
    """What each rank of `flexfloor rollout` runs."""
    from flexfloor.recipes.generate import generate

    generate(config)


def _check_training(config: Config) -> None:
    from flexfloor.preflight import check_training

    check_training(config)


def _check_generation(config: Config) -> None:
    from flexfloor.preflight import check_generation

    check_generation(config)


TRAIN = Work(name="train", check=_check_training, on_rank=train_on_rank, stoppable=True)
ROLLOUT = Work(name="rollout", check=_check_generation, on_rank=generate_on_rank, stoppable=False)
