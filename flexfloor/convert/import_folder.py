"""From a Hugging Face folder to one that holds the same weights as a checkpoint does.

Such a folder is loaded under any layout without a weight map, and `flexfloor convert export` writes it back.

Invariants:
- What stands at the place is whole; an import that was interrupted leaves `<out>.partial` at most.
- No rank holds more of the model than `CHUNK_BYTES`, or one row.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from flexfloor import heartbeat, parallel
from flexfloor.convert.folder_model import FolderModel
from flexfloor.convert.model_parts import Chunk, ModelParts
from flexfloor.convert.request import MAKE_SPACE, Import
from flexfloor.convert.weights_writer import write_weights
from flexfloor.errors import WeightsError
from flexfloor.models.config import ModelConfig
from flexfloor.models.hf_config import HfModel, read_hf_config, write_hf_config
from flexfloor.models.registry import weight_map_of
from flexfloor.models.weights import hf_folder
from flexfloor.track.console import make_console
from flexfloor.train import checkpoint_folder, checksums
from flexfloor.train.plain_data import write_plain
from flexfloor.train.shared_failure import on_every_rank, on_first_rank

CHUNK_BYTES = 16 * 2**20


def import_folder(wanted: Import) -> None:
    """Write `wanted.out`; all ranks call it, and make their own parallel state.

    Raises:
        ConfigError: `out` holds something, or config.json says what no family of ours computes.
        WeightsError: on every rank, when one cannot read or write, or the files do not fit.
    """
    parallel.initialize(ep_size=1, seed=0, timeout_seconds=600)
    found = read_hf_config(wanted.hf)
    model = ModelConfig(**found.fields)
    parts = ModelParts(model, found.vocab_size)
    source = on_every_rank(
        lambda: FolderModel(wanted.hf, found, weight_map_of(model), parts),
        f"cannot take the weights of {wanted.hf}",
        WeightsError,
    )
    model = dataclasses.replace(model, dtype=wanted.dtype or source.dtype())
    _first(wanted, lambda: _begin(wanted))
    _write_weights(wanted, source, parts, model)
    _first(wanted, lambda: _write_plain(wanted, found, model))
    _seal(wanted)
    _first(wanted, lambda: _write_rest(wanted, found, model))
    _first(wanted, lambda: hf_folder.put_in_place(wanted.out))
    console = make_console(dist.get_rank())
    if source.skipped:
        console.line(f"{len(source.skipped)} tensors of multi-token prediction are left out")
    console.line(f"{wanted.hf} as {wanted.out}, in {model.dtype}")


def _together(wanted: Import, action: Callable[[], Any]) -> Any:
    return on_every_rank(action, f"cannot write {wanted.out}", WeightsError, MAKE_SPACE)


def _first(wanted: Import, action: Callable[[], Any]) -> None:
    on_first_rank(action, f"cannot write {wanted.out}", WeightsError, MAKE_SPACE)


def _begin(wanted: Import) -> None:
    hf_folder.require_free("--out", wanted.out)
    (hf_folder.begin(wanted.out) / checkpoint_folder.WEIGHTS).mkdir()


def _write_weights(wanted: Import, source: FolderModel, parts: ModelParts, model: ModelConfig) -> None:
    dtypes = _dtypes(parts, getattr(torch, model.dtype))
    mine = _shares(source, parts, dtypes)[dist.get_rank()]
    folder = hf_folder.partial_of(wanted.out) / checkpoint_folder.WEIGHTS
    with (
        source.reader,
        make_console(dist.get_rank()).progress("import", sum(c.num_bytes for c in mine) >> 20, "MiB") as bar,
    ):
        done = 0

        def read(chunk: Chunk) -> Tensor:
            nonlocal done
            heartbeat.beat()
            bar.reach((done := done + chunk.num_bytes) >> 20)
            return source.rows(chunk.name, chunk.row, chunk.num_rows, dtypes[chunk.name])

        _together(wanted, lambda: write_weights(folder, mine, dtypes, read, parts.objects))


def _dtypes(parts: ModelParts, dtype: torch.dtype) -> dict[str, torch.dtype]:
    """Of each tensor; what is no parameter, a router's bias, is in float32 at least."""
    wide = torch.promote_types(dtype, torch.float32)
    return {name: dtype if name in parts.learned else wide for name in parts.shapes}


def _shares(source: FolderModel, parts: ModelParts, dtypes: dict[str, torch.dtype]) -> list[list[Chunk]]:
    """The chunks of each rank: about as many bytes for each, in the order in which they are stored."""
    chunks = [c for name in parts.shapes for c in parts.chunks(name, dtypes[name].itemsize, CHUNK_BYTES)]
    chunks.sort(key=lambda chunk: source.place(chunk.name, chunk.row))
    num_ranks, total = dist.get_world_size(), sum(chunk.num_bytes for chunk in chunks)
    shares: list[list[Chunk]] = [[] for _ in range(num_ranks)]
    before = 0
    for chunk in chunks:
        shares[before * num_ranks // total].append(chunk)
        before += chunk.num_bytes
    return shares


def _write_plain(wanted: Import, found: HfModel, model: ModelConfig) -> None:
    extra = {
        "model": {**model.identity(), "vocab_size": found.vocab_size},
        "origin": {"model_path": None, "tokenizer_path": None, "max_positions": found.max_positions},
    }
    plain = hf_folder.partial_of(wanted.out) / checkpoint_folder.PLAIN
    write_plain(plain, {"extra": extra, "has_stepped": False})


def _seal(wanted: Import) -> None:
    partial = hf_folder.partial_of(wanted.out)
    names = _together(wanted, lambda: checkpoint_folder.file_sizes(partial))
    sums = checksums.gathered(_together(wanted, lambda: checksums.sums_of_mine(partial, names, sync=True)))
    layout = {"ranks": dist.get_world_size(), "ep": 1}
    _first(wanted, lambda: checkpoint_folder.seal(partial, 0, layout=layout, sums=sums))


def _write_rest(wanted: Import, found: HfModel, model: ModelConfig) -> None:
    """What a run takes from a folder beside weights; a user may change it, so that it is not sealed."""
    partial = hf_folder.partial_of(wanted.out)
    write_hf_config(partial, model, vocab_size=found.vocab_size, max_positions=found.max_positions)
    hf_folder.copy_files(wanted.hf, partial, (*hf_folder.TOKENIZER_FILES, hf_folder.GENERATION_FILE))
