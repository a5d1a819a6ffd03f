"""The words of `flexfloor convert`."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from flexfloor.convert.find_step import find_step
from flexfloor.convert.request import Export
from flexfloor.errors import ConfigError
from flexfloor.models.weights.hf_folder import require_free

_UNITS = {"MB": 10**6, "GB": 10**9}
_EXAMPLES = """\
examples:
  flexfloor convert export --checkpoint runs/flexfloor/mine --out mine-hf
  flexfloor convert export --checkpoint runs/mine/checkpoints/step_000040 --out mine-hf --dtype bfloat16

A Hugging Face folder needs no conversion: flexfloor train model.path=DIR takes it as it is.
"""


def convert(words: list[str]) -> None:
    """Do what `words` ask for."""
    options = _parser().parse_args(words)
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


def export_on_rank(wanted: Export) -> None:
    """What the one rank runs; here, so that the starting process need not import it."""
    from flexfloor.convert.export import export_checkpoint

    export_checkpoint(wanted)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="flexfloor convert", epilog=_EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", metavar="command", required=True)
    text = "a run's checkpoint as a Hugging Face folder"
    export = commands.add_parser(
        "export",
        help=text,
        description=f"Write {text}.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    export.add_argument(
        "--checkpoint", type=Path, required=True, metavar="DIR", help="a checkpoint, or a run: its newest"
    )
    export.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to be made")
    export.add_argument(
        "--hf",
        type=Path,
        metavar="DIR",
        help="folder with the tokenizer; default: the run's tokenizer",
    )
    export.add_argument("--dtype", choices=("float32", "bfloat16"), help="default: the checkpoint's")
    export.add_argument(
        "--fused-experts", action="store_true", help="all experts of a layer in one tensor, as transformers 5"
    )
    export.add_argument("--max-shard-size", default="5GB", metavar="SIZE", help="of a file, default 5GB")
    return parser


def _bytes(text: str) -> int:
    match = re.fullmatch(r"(\d+)\s*(MB|GB)", text.strip(), re.IGNORECASE)
    if match is None or int(match[1]) == 0:
        raise ConfigError(f"--max-shard-size = {text!r}: must be a number of MB or GB, such as 5GB")
    return int(match[1]) * _UNITS[match[2].upper()]
