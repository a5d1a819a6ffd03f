"""The command line: `flexfloor train`, `rollout`, `report`, `simulate`, `config`, `doctor`.

Every command takes a recipe and overrides, all as Hydra's `name=value` words, but `report`, which takes the
folder of a run. What a user can mend is printed without a traceback.

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

from flexfloor.config import Config, compose, finite_numbers, to_yaml
from flexfloor.error_message import write_error
from flexfloor.errors import ConfigError, DataError, FlexFloorError
from flexfloor.jobs.work import ROLLOUT, TRAIN, Work, check, start
from flexfloor.names import did_you_mean

_EXAMPLES = """\
examples:
  flexfloor train recipe=tiny-mixtral
  flexfloor train recipe=tiny-mixtral trainer.total_training_steps=20 actor.optim.lr=3e-4
  flexfloor train -m recipe=tiny-mixtral actor.optim.lr=1e-4,3e-4
  flexfloor train recipe=tiny-mixtral launch=slurm launch.slurm.nodes=2 launch.slurm.dry_run=true
  flexfloor rollout recipe=tiny-mixtral generate.max_prompts=16
  flexfloor report runs/flexfloor/demo
  flexfloor convert import --hf DIR --out DIR
  flexfloor convert export --checkpoint runs/flexfloor/demo --out demo-hf
  flexfloor simulate simulate.model=deepseek-v3 simulate.hardware=h200 simulate.num_gpus=64
  flexfloor config recipe=tiny-mixtral
  flexfloor doctor
  torchrun --nproc-per-node 4 -m flexfloor train recipe=tiny-mixtral
"""
Command = Callable[[list[str], Path | None], int]
"""Overrides and the folder of `--config-dir` to an exit status."""


def main(words: list[str] | None = None) -> int:
    """Run the command that `words` (default: the process's arguments) ask for; returns the exit status."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # where a user's own modules are, as for `python -m`
    return _reported(lambda: _run(sys.argv[1:] if words is None else words))


def run_reported(work: Work, config: Config) -> int:
    """Check and run `work`; says what a user can mend on stderr, and returns the exit status."""
    return _reported(lambda: _run_one(work, config))


def show(config: Config) -> None:
    """Print the composed configuration."""
    sys.stdout.write(to_yaml(config))


def doctor(overrides: list[str], config_dir: Path | None) -> int:
    """Say what is installed, what this machine has and what would run on it; 0 when a run can be started."""
    from flexfloor.doctor.report import examine

    return 0 if examine(_recipes(), overrides, config_dir) else 1


def _on_ranks(work: Work) -> Command:
    def command(overrides: list[str], config_dir: Path | None) -> int:
        return _run_one(work, compose(overrides, config_dir))

    return command


def _run_one(work: Work, config: Config) -> int:
    check(work, config)
    handed_in = start(work, config)
    if handed_in is not None:
        sys.stdout.write(f"{handed_in.text}\n")
    return 0


def _show(overrides: list[str], config_dir: Path | None) -> int:
    show(compose(overrides, config_dir))
    return 0


def _report(folders: list[str], _: Path | None) -> int:
    if len(folders) != 1:
        raise ConfigError(f"flexfloor report takes the folder of one run, and {len(folders)} were given")
    from flexfloor.report.rebuild import rebuild

    rebuild(Path(folders[0]))
    return 0


def _convert(words: list[str], _: Path | None) -> int:
    from flexfloor.convert.command import convert

    convert(words)
    return 0


def _simulate(overrides: list[str], config_dir: Path | None) -> int:
    # What a run on this machine needs beyond that does not matter on a cluster that is not there.
    config = compose(overrides, config_dir, check=finite_numbers)
    from flexfloor.simulate.command import run_simulation

    run_simulation(config)
    return 0


WORKS = {work.name: work for work in (TRAIN, ROLLOUT)}
"""Commands that run on ranks, of which -m runs several."""
COMMANDS: dict[str, tuple[Command, str]] = {
    "train": (_on_ranks(TRAIN), "warm start, then GRPO; resumes by itself"),
    "rollout": (
        _on_ranks(ROLLOUT),
        "generate and score only: one jsonl line a response, in generate.output",
    ),
    "report": (
        _report,
        "page, picture, trace and closing table of a finished or stopped run, from its folder",
    ),
    "convert": (_convert, "between Hugging Face folders and checkpoints; `convert import --help` says more"),
    "simulate": (
        _simulate,
        "what schedules would do on a modelled cluster: a table, time lines and a frontier, simulated",
    ),
    "config": (_show, "print the composed configuration as YAML"),
    "doctor": (
        doctor,
        "versions, patches, memory, and what would run here; of all recipes or of the settings given",
    ),
}


def _reported(run: Callable[[], int]) -> int:
    try:
        return run()
    except FlexFloorError as error:
        write_error(error)
        return 2 if isinstance(error, ConfigError | DataError) else 1
    except KeyboardInterrupt:
        sys.stderr.write("flexfloor: interrupted; all ranks have ended\n")
        return 130


def _run(words: list[str]) -> int:
    parser = _parser()
    if not words:
        parser.print_help(sys.stderr)
        return 2
    if not words[0].startswith("-") and words[0] not in COMMANDS:
        raise ConfigError(f"unknown command {words[0]}; {did_you_mean(words[0], COMMANDS)}")
    arguments, rest = parser.parse_known_args(words)
    overrides = [*arguments.overrides, *_overrides(rest)]
    if getattr(arguments, "multirun", False):
        from flexfloor.jobs.multirun import run_sweep

        return run_sweep(WORKS[arguments.command], overrides, arguments.config_dir)
    command, _ = COMMANDS[arguments.command]
    return command(overrides, arguments.config_dir)


def _overrides(words: list[str]) -> list[str]:
    """Words that stand behind an option; one with dashes of its own cannot be meant."""
    for word in words:
        if word.startswith("-"):
            raise ConfigError(
                f"unknown option {word}; settings have no dashes: {word.lstrip('-') or 'name=value'}"
            )
    return words


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
        _add_arguments(command, name)
    return parser


def _add_arguments(command: argparse.ArgumentParser, name: str) -> None:
    if name == "convert":
        command.add_argument("overrides", nargs=argparse.REMAINDER, metavar="import|export ...")
        command.set_defaults(config_dir=None)
        return
    if name == "report":
        command.add_argument("overrides", nargs="*", metavar="RUN", help="folder: trainer.default_local_dir")
        command.set_defaults(config_dir=None)
        return
    command.add_argument("overrides", nargs="*", metavar="name=value", help="recipe=<name> and fields to set")
    command.add_argument("--config-dir", type=Path, help="folder with own recipe/, model/, launch/ files")
    if name in WORKS:
        command.add_argument(
            "-m", "--multirun", action="store_true", help="a job for each combination of name=a,b"
        )


def _recipes() -> list[str]:
    folder = importlib.resources.files("flexfloor.conf") / "recipe"
    return sorted(file.name.removesuffix(".yaml") for file in folder.iterdir() if file.name.endswith(".yaml"))
