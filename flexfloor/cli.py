"""The command line: `flexfloor train`, `flexfloor rollout`, `flexfloor config`, `flexfloor doctor`.

Every command takes a recipe and overrides, all as Hydra's `name=value` words. What a user can mend
is printed without a traceback.

Invariants:
- Exit status: 0 done; 2 bad settings or data, found before any rank starts wherever that is
  possible; 1 a failure on a rank, or something that the doctor finds in the way; 130 interrupted.
- `flexfloor config` prints YAML on stdout and nothing else.
"""

from __future__ import annotations

import argparse
import importlib.resources
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flexfloor.config import Config, compose, to_yaml
from flexfloor.errors import ConfigError, DataError, FlexFloorError, RankError
from flexfloor.names import did_you_mean

_EXAMPLES = """\
examples:
  flexfloor train recipe=tiny-mixtral
  flexfloor train recipe=tiny-mixtral trainer.total_training_steps=20 actor.optim.lr=3e-4
  flexfloor rollout recipe=tiny-mixtral generate.max_prompts=16
  flexfloor config recipe=tiny-mixtral
  flexfloor doctor
  torchrun --nproc-per-node 4 -m flexfloor train recipe=tiny-mixtral
"""
_MAX_TRACEBACK_LINES = 20


def main(words: list[str] | None = None) -> int:
    """Run the command that `words` (default: the process's arguments) ask for; returns the exit status."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # where a user's own modules are, as for `python -m`
    try:
        return _run(sys.argv[1:] if words is None else words)
    except FlexFloorError as error:
        _report(error)
        return 2 if isinstance(error, ConfigError | DataError) else 1
    except KeyboardInterrupt:
        sys.stderr.write("flexfloor: interrupted; all ranks have ended\n")
        return 130


def train(config: Config) -> None:
    """Train on this machine's ranks, or as one rank under torchrun."""
    from flexfloor.preflight import check_training

    check_training(config)
    _on_ranks(train_on_rank, config, stoppable=True)


def rollout(config: Config) -> None:
    """Generate and score on this machine's ranks, or as one rank under torchrun."""
    from flexfloor.preflight import check_generation

    check_generation(config)
    _on_ranks(generate_on_rank, config)


def show(config: Config) -> None:
    """Print the composed configuration."""
    sys.stdout.write(to_yaml(config))


def train_on_rank(config: Config) -> None:
    """What each rank of `flexfloor train` runs; here, so that the starting process need not import it."""
    from flexfloor.recipes.grpo import train

    train(config)


def generate_on_rank(config: Config) -> None:
    """What each rank of `flexfloor rollout` runs."""
    from flexfloor.recipes.generate import generate

    generate(config)


def doctor(overrides: list[str], config_dir: Path | None) -> int:
    """Say what is installed, what this machine has and what would run on it; 0 when a run can be started."""
    from flexfloor.doctor.report import examine

    return 0 if examine(_recipes(), overrides, config_dir) else 1


def _with_config(run: Callable[[Config], None]) -> Callable[[list[str], Path | None], int]:
    def command(overrides: list[str], config_dir: Path | None) -> int:
        run(compose(overrides, config_dir))
        return 0

    return command


COMMANDS: dict[str, tuple[Callable[[list[str], Path | None], int], str]] = {
    "train": (_with_config(train), "warm start, then GRPO; resumes by itself"),
    "rollout": (
        _with_config(rollout),
        "generate and score only: one jsonl line a response, in generate.output",
    ),
    "config": (_with_config(show), "print the composed configuration as YAML"),
    "doctor": (
        doctor,
        "versions, patches, memory, and what would run here; of all recipes or of the settings given",
    ),
}


def _run(words: list[str]) -> int:
    parser = _parser()
    if not words:
        parser.print_help(sys.stderr)
        return 2
    if not words[0].startswith("-") and words[0] not in COMMANDS:
        raise ConfigError(f"unknown command {words[0]}; {did_you_mean(words[0], COMMANDS)}")
    arguments, rest = parser.parse_known_args(words)
    command, _ = COMMANDS[arguments.command]
    return command([*arguments.overrides, *_overrides(rest)], arguments.config_dir)


def _overrides(words: list[str]) -> list[str]:
    """Words that stand behind an option; one with dashes of its own cannot be meant."""
    for word in words:
        if word.startswith("-"):
            raise ConfigError(
                f"unknown option {word}; settings have no dashes: {word.lstrip('-') or 'name=value'}"
            )
    return words


def _on_ranks(run: Callable[[Config], None], config: Config, *, stoppable: bool = False) -> None:
    from flexfloor import launch

    settings: dict[str, Any] = {
        "collective_timeout_seconds": config.launch.timeout_seconds,
        "hang_seconds": config.launch.hang_seconds,
        "stacks_folder": Path(config.trainer.default_local_dir),
        "threads_per_rank": config.launch.threads_per_rank,
    }
    try:
        if launch.under_torchrun():
            launch.run_this_rank(run, config, **settings)
        else:
            launch.run_ranks(run, config.launch.nproc, config, **settings, stoppable=stoppable)
    except RankError as error:
        raise _with_advice(error, config) from error.__cause__


def _with_advice(error: RankError, config: Config) -> RankError:
    """`error` as it is, or with what to lower when the kernel may have killed the rank for its memory."""
    if error.was_killed:
        from flexfloor.stages.memory import advice

        error.args = (f"{error}\nif memory was short: {advice(error.stage, config)}",)
    return error


def _report(error: FlexFloorError) -> None:
    if isinstance(error, RankError):
        lines = error.rank_traceback.splitlines()
        sys.stderr.writelines(f"{line}\n" for line in lines[-_MAX_TRACEBACK_LINES:])
    rank, message = os.environ.get("RANK", "0"), str(error)
    if rank != "0" and not isinstance(error, RankError):
        message = f"rank {rank}: " + message.partition("\n")[0]
    elif error.place:
        message += f"\n(on {error.place})"
    sys.stderr.write(f"flexfloor: {message}\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="flexfloor",
        description="RL post-training of mixture-of-experts models on Megatron-Core.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", metavar="command", required=True)
    for name, (_, text) in COMMANDS.items():
        command = commands.add_parser(
            name,
            help=text,
            description=f"{text[0].upper()}{text[1:]}.",
            epilog=f"recipes: {', '.join(_recipes())}\n\n{_EXAMPLES}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add_argument(
            "overrides", nargs="*", metavar="name=value", help="recipe=<name> and fields to set"
        )
        command.add_argument("--config-dir", type=Path, help="folder with own recipe/ and model/ files")
    return parser


def _recipes() -> list[str]:
    folder = importlib.resources.files("flexfloor.conf") / "recipe"
    return sorted(file.name.removesuffix(".yaml") for file in folder.iterdir() if file.name.endswith(".yaml"))
