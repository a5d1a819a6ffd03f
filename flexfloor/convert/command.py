"""The words of `flexfloor convert`."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flexfloor.checks import require
from flexfloor.convert.find_step import find_step
from flexfloor.convert.request import Export, Import
from flexfloor.errors import ConfigError
from flexfloor.models.hf_config import read_hf_config
from flexfloor.models.weights.hf_folder import require_free

_UNITS = {"MB": 10**6, "GB": 10**9}
_EXAMPLES = """\
examples:
  flexfloor convert import --hf DIR --out OUT
  flexfloor convert export --checkpoint runs/flexfloor/mine --out mine-hf
  flexfloor convert export --checkpoint runs/mine/checkpoints/step_000040 --out mine-hf --dtype bfloat16

A Hugging Face folder needs no import: flexfloor train model.path=DIR takes it as it is. One that was imported
once is taken without being mapped again: flexfloor train model.path=OUT.
"""


def convert(words: list[str]) -> None:
    """Do what `words` ask for."""
    options = _parser().parse_args(words)
    options.run(options)


def _import(options: argparse.Namespace) -> None:
    require(options.ranks >= 1, "--ranks", options.ranks, "1 or more")
    wanted = Import(hf=options.hf, out=options.out, dtype=options.dtype)
    require_free("--out", wanted.out)
    try:
        read_hf_config(wanted.hf)
    except ConfigError as error:
        raise ConfigError(str(error).replace("model.path", "--hf", 1)) from None
    from flexfloor.launch import run_ranks

    run_ranks(import_on_rank, options.ranks, wanted)


def _export(options: argparse.Namespace) -> None:
    size = _bytes(options.max_shard_size)
    wanted = Export(
        checkpoint=find_step(options.checkpoint),
        out=options.out,
        hf=options.hf,
        dtype=options.dtype,
        fused_experts=options.fused_experts,
        max_shard_bytes=size,
    )
    require_free("--out", wanted.out)
    from flexfloor.launch import run_ranks

    run_ranks(export_on_rank, 1, wanted)


def import_on_rank(wanted: Import) -> None:
    """What each rank runs; here, so that the starting process need not import it."""
    from flexfloor.convert.import_folder import import_folder

    import_folder(wanted)


def export_on_rank(wanted: Export) -> None:
    """What the one rank runs; here, so that the starting process need not import it."""
    from flexfloor.convert.export import export_checkpoint

    export_checkpoint(wanted)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="flexfloor convert", epilog=_EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", metavar="command", required=True)
    _add_import(_command(commands, "import", "a Hugging Face folder as weights of a checkpoint", _import))
    _add_export(_command(commands, "export", "a run's checkpoint as a Hugging Face folder", _export))
    return parser


def _command(commands: Any, name: str, text: str, run: Callable[[argparse.Namespace], None]) -> Any:
    command = commands.add_parser(
        name,
        help=text,
        description=f"Write {text}.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(run=run)
    return command


def _add_import(command: argparse.ArgumentParser) -> None:
    command.add_argument("--hf", type=Path, required=True, metavar="DIR", help="the Hugging Face folder")
    command.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to be made")
    text = "processes that read and write at once, default 1"
    command.add_argument("--ranks", type=int, default=1, metavar="N", help=text)
    text = "default: the narrowest that holds what the files have"
    command.add_argument("--dtype", choices=("float32", "bfloat16"), help=text)


def _add_export(command: argparse.ArgumentParser) -> None:
    text = "a checkpoint, an imported folder, or a run: its newest checkpoint"
    command.add_argument("--checkpoint", type=Path, required=True, metavar="DIR", help=text)
    command.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to be made")
    text = "folder with the tokenizer; default: the run's tokenizer"
    command.add_argument("--hf", type=Path, metavar="DIR", help=text)
    command.add_argument("--dtype", choices=("float32", "bfloat16"), help="default: the checkpoint's")
    text = "all experts of a layer in one tensor, as transformers 5"
    command.add_argument("--fused-experts", action="store_true", help=text)
    command.add_argument("--max-shard-size", default="5GB", metavar="SIZE", help="of a file, default 5GB")


def _bytes(text: str) -> int:
    match = re.fullmatch(r"(\d+)\s*(MB|GB)", text.strip(), re.IGNORECASE)
    if match is None or int(match[1]) == 0:
        raise ConfigError(f"--max-shard-size = {text!r}: must be a number of MB or GB, such as 5GB")
    return int(match[1]) * _UNITS[match[2].upper()]
