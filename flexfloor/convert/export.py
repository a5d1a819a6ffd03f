"""From a run's checkpoint to a Hugging Face folder, tensor by tensor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from flexfloor import heartbeat, parallel
from flexfloor.checks import require
from flexfloor.convert.find_step import find_step
from flexfloor.convert.request import MAKE_SPACE, Export
from flexfloor.convert.stored_model import StoredModel, model_in
from flexfloor.data.tokenizer import load_tokenizer
from flexfloor.errors import WeightsError
from flexfloor.models.config import ModelConfig
from flexfloor.models.hf_config import CONFIG_FILE, read_hf_config, write_hf_config
from flexfloor.models.hf_keys import HF_FAMILIES
from flexfloor.models.registry import weight_map_of
from flexfloor.models.weights import hf_folder
from flexfloor.models.weights.assembly import Shard, assemble, shard
from flexfloor.models.weights.shard_file import chunks_of, write_shard
from flexfloor.track.console import make_console
from flexfloor.train.checkpoint import read_extra
from flexfloor.train.shared_failure import reason_of


def export_checkpoint(wanted: Export) -> None:
    """Write `wanted.out`; runs on one rank, which has its own parallel state.

    Raises:
        ConfigError: `out` holds something, or no Hugging Face class computes this model.
        CheckpointError: the checkpoint is not whole.
        WeightsError: files cannot be written.
    """
    hf_folder.require_free("--out", wanted.out)
    parallel.initialize(ep_size=1, seed=0, timeout_seconds=600)
    step = find_step(wanted.checkpoint)
    extra = read_extra(step)
    model, vocab_size = model_in(extra, step)
    stored = StoredModel(step, model, vocab_size)
    shards = _shards(wanted, stored, model, vocab_size)
    partial = hf_folder.begin(wanted.out)
    _write_rest(partial, wanted, step, extra, model, vocab_size)
    console = make_console(0)
    num_tensors = sum(len(each.tensors) for each in shards)
    with _telling_of(wanted.out), console.progress("export", num_tensors, "tensors") as bar:
        for each in shards:
            write_shard(partial, each, chunks_of(each, stored.rows, _advance(bar)))
        hf_folder.finish(wanted.out, shards)
    written = sum(each.num_bytes for each in shards) / 1e9
    console.line(f"{step} as {wanted.out}: {len(shards)} files of weights, {written:.2f} GB")


@contextmanager
def _telling_of(out: Path) -> Iterator[None]:
    """Say of a file that cannot be read or written what was going on, and what helps on a full disk."""
    try:
        yield
    except OSError as error:
        raise WeightsError(f"cannot write {out}: {reason_of(error, MAKE_SPACE)}") from error


def _shards(wanted: Export, stored: StoredModel, model: ModelConfig, vocab_size: int) -> list[Shard]:
    dtype = None if wanted.dtype is None else getattr(torch, wanted.dtype)
    dtypes = {name: dtype if dtype and name in stored.learned else of for name, of in stored.dtypes.items()}
    tensors = assemble(
        weight_map_of(model),
        stored.shapes,
        dtypes,
        vocab_size=vocab_size,
        fused_experts=wanted.fused_experts,
    )
    return shard(tensors, lambda _: 0, wanted.max_shard_bytes)


def _advance(bar: Any) -> Callable[[object], None]:
    def advance(_: object) -> None:
        heartbeat.beat()
        bar.advance()

    return advance


def _write_rest(
    folder: Path, wanted: Export, step: Path, extra: dict[str, Any], model: ModelConfig, vocab_size: int
) -> None:
    """config.json, generation settings and tokenizer."""
    origin = extra.get("origin", {})
    source = _source(wanted, step, origin)
    if model.family in HF_FAMILIES:
        positions = read_hf_config(source).max_positions if source else origin.get("max_positions", 4096)
        write_hf_config(folder, model, vocab_size=vocab_size, max_positions=positions)
    else:
        allowed = f"a folder with the {CONFIG_FILE} of model.family={model.family}, which is not ours"
        require(source is not None, "--hf", wanted.hf, allowed)
    if source is not None:
        names = [hf_folder.GENERATION_FILE, *([] if model.family in HF_FAMILIES else [CONFIG_FILE])]
        hf_folder.copy_files(source, folder, names)
    _write_tokenizer(folder, wanted.hf or step, origin.get("tokenizer_path"))


def _source(wanted: Export, step: Path, origin: dict[str, Any]) -> Path | None:
    """The folder with the config.json that the model came with, if there is one; an import keeps it."""
    if wanted.hf is not None:
        allowed = f"a folder with a {CONFIG_FILE}"
        require((wanted.hf / CONFIG_FILE).is_file(), "--hf", str(wanted.hf), allowed)
        return wanted.hf
    candidates = [step, *([Path(origin["model_path"])] if origin.get("model_path") else [])]
    return next((path for path in candidates if (path / CONFIG_FILE).is_file()), None)


def _write_tokenizer(folder: Path, hf: Path, used: str | None) -> None:
    """That in the folder `hf`, which a user named or an import made, else the one that the run used."""
    if hf_folder.copy_files(hf, folder, hf_folder.TOKENIZER_FILES):
        return
    if used is not None and not hf_folder.copy_files(Path(used), folder, hf_folder.TOKENIZER_FILES):
        load_tokenizer(used).save_pretrained(folder)
